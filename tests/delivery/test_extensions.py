"""Outlets of other packages: found by their entry points, and refused with a reason where they are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.delivery.outlets.base import load_outlet, outlet_class
from headwater.errors import ExtensionError
from headwater.settings import OutletSettings

MODULE = """
from headwater.delivery.outlets.base import DELIVERED, Outlet

class Good(Outlet):
    async def send(self, batch):
        return [DELIVERED] * len(batch.events)

class NotOne:
    pass
"""
ENTRIES = """
[headwater.outlets]
good = elsewhere_outlets:Good
stranger = elsewhere_outlets:NotOne
broken = elsewhere_missing:Anything
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it."""
    (tmp_path / "elsewhere_outlets.py").write_text(MODULE)
    about = tmp_path / "elsewhere-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_an_outlet_is_made_when_another_package_brings_its_type() -> None:
    outlet = load_outlet(OutletSettings(name="mine", type="good"))
    assert type(outlet).__name__ == "Good"
    assert outlet.settings.name == "mine"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("type", "problem"),
    [
        ("stranger", r"`stranger` \(elsewhere_outlets:NotOne\) is not a subclass"),
        ("broken", r"cannot be imported: No module named 'elsewhere_missing'"),
        ("absent", r"no outlet of the type `absent`.*broken, console, dataset, file, good, http, kafka"),
    ],
)
def test_the_reason_is_told_when_an_outlet_cannot_be_had(type: str, problem: str) -> None:
    with pytest.raises(ExtensionError, match=problem):
        outlet_class(type)
