"""The conformance suite of destinations: subclass it, implement `make`, run pytest.

    class TestMine(DestinationConformance):
        def make(self, tmp_path):
            return MySubject(...)          # see `Subject`

Each test is a part of the contract in `headwater.destinations.base`.
"""

import pytest

# before the parts are imported, so that a failed assertion of theirs shows its values
pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("loads", "ownership", "subject", "tables", "values"))
)

from headwater.testing.destinations.loads import KeyTests, LoadTests  # noqa: E402
from headwater.testing.destinations.ownership import OwnershipTests  # noqa: E402
from headwater.testing.destinations.subject import Subject, staged_load  # noqa: E402
from headwater.testing.destinations.tables import NameTests, TableTests  # noqa: E402
from headwater.testing.destinations.values import ValueTests  # noqa: E402

__all__ = ["DestinationConformance", "Subject", "staged_load"]


class DestinationConformance(TableTests, NameTests, OwnershipTests, ValueTests, KeyTests, LoadTests):
    """All tests. Set the SQL and names of your product; override and document what it cannot do."""
