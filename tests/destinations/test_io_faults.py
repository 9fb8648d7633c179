"""A fault at every call that changes a file of a destination: each row is there once (G5).

A sample of the calls is tried, and more of them in the long tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.destinations import io_fault_scenarios
from tests.support import io_faults


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = io_faults.compile_library(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.mark.long
@pytest.mark.timeout(900)  # hundreds of processes, each with its fault
@pytest.mark.parametrize(
    ("scenario", "stride"), [("DuckDBLoads", 12), ("DeltaLoads", 7), ("IcebergLoads", 100)]
)
def test_every_row_is_there_once_when_a_call_of_the_disk_failed(
    library: Path, scenario: str, stride: int, full: bool
) -> None:
    found = io_faults.run(library, io_fault_scenarios.__name__, scenario, 1 if full else stride)
    assert found["problems"] == [], "\n\n".join(found["problems"][:5])
    assert found["calls"] > 20
    assert found["faults"] >= len(io_faults.FAULTS)
