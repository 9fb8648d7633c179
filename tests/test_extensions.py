"""Extensions of other packages: found by their entry points, refused with a reason where they are broken."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, get_type_hints, runtime_checkable

import pytest

from headwater.delivery.outlets.base import Outlet, load_outlet, outlet_class
from headwater.destinations.base import destination_class
from headwater.errors import ExtensionError
from headwater.extensions import load, load_all
from headwater.pipeline.steps.enrich.base import load_enricher
from headwater.settings import OutletSettings, PipelineSettings
from headwater.system.installation import install_command

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
http = elsewhere_outlets:Good
console = headwater.delivery.outlets.console:ConsoleOutlet

[headwater.destinations]
broken = elsewhere_missing:Anything

[headwater.enrichers]
broken = elsewhere_missing:Anything
stranger = elsewhere_outlets:NotOne

[elsewhere.all]
second = elsewhere_outlets:Good
broken = elsewhere_missing:Anything
absent = elsewhere_outlets:Nowhere
first = elsewhere_outlets:NotOne
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as pip leaves it."""
    (tmp_path / "elsewhere_outlets.py").write_text(MODULE)
    about = tmp_path / "elsewhere-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("elsewhere_outlets", None)


def test_an_outlet_is_made_when_another_package_brings_its_type() -> None:
    outlet = load_outlet(OutletSettings(name="mine", type="good"))
    assert type(outlet).__name__ == "Good"
    assert outlet.settings.name == "mine"


@pytest.mark.parametrize(
    ("type", "problem"),
    [
        (
            "stranger",
            r"`stranger` \(elsewhere_outlets:NotOne\) breaks the contract of .*Outlet",
        ),
        ("broken", r"cannot be imported: ModuleNotFoundError: No module named 'elsewhere_missing'"),
        ("broken", r"Run `.*pip install --force-reinstall elsewhere`, or `.*pip uninstall elsewhere`\.$"),
        ("stranger", r"all of its methods, or run `.*pip uninstall elsewhere`\.$"),
        ("absent", r"no outlet of the type `absent`.*broken, console, dataset, file, good, http, kafka"),
        ("datasett", r"Did you mean `dataset`\?"),
        (
            "http",
            r"elsewhere_outlets:Good\) and the package headwater .*Run `.*pip uninstall elsewhere`\.$",
        ),
    ],
)
def test_the_reason_is_reported_when_an_outlet_cannot_be_loaded(type: str, problem: str) -> None:
    with pytest.raises(ExtensionError, match=problem):
        outlet_class(type)


def test_the_command_that_installs_it_is_the_hint_when_a_part_of_ours_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "headwater.delivery.outlets.kafka", raising=False)
    with pytest.raises(ExtensionError, match="`kafka`") as raised:
        outlet_class("kafka")
    assert raised.value.hint == f"Run `{install_command('kafka')}`."


def test_every_type_is_listed_once_and_can_be_loaded_when_the_outlets_of_ours_are_asked_for() -> None:
    with pytest.raises(ExtensionError) as raised:
        outlet_class("absent")
    listed = raised.value.hint.partition("Installed are ")[2].partition(";")[0].split(", ")
    ours = set(listed) - {"good", "stranger", "broken"}
    assert ours == {"openlineage", "dataset", "kafka", "http", "file", "console"}
    documented = get_type_hints(OutletSettings, include_extras=True)["type"].__metadata__[0].description
    assert set(re.findall("`([a-z]+)`", documented)) == ours
    assert all(issubclass(outlet_class(name), Outlet) for name in ours - {"http"})  # elsewhere has one too


def test_a_class_is_had_when_it_is_installed_twice() -> None:
    assert issubclass(outlet_class("console"), Outlet)


def test_the_extra_is_named_when_a_destination_of_ours_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "headwater.destinations.duckdb", raising=False)
    with pytest.raises(ExtensionError) as raised:
        destination_class("duckdb")
    assert raised.value.hint == f"Run `{install_command('pipeline', 'duckdb')}`."


def test_its_package_is_named_when_a_destination_of_others_cannot_be_imported() -> None:
    with pytest.raises(ExtensionError, match="pip install --force-reinstall elsewhere"):
        destination_class("broken")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("broken", r"rule `broken` .*elsewhere_missing.*or `.*pip uninstall elsewhere`\.$"),
        ("stranger", r"rule `stranger` .*breaks the contract of .*Enricher"),
    ],
)
def test_the_reason_is_reported_when_a_rule_cannot_be_loaded(name: str, problem: str) -> None:
    with pytest.raises(ExtensionError, match=problem):
        load_enricher(name, PipelineSettings())


@runtime_checkable
class Sends(Protocol):
    def send(self, batch: object) -> object: ...


class Other(ABC):
    @abstractmethod
    def other(self) -> None: ...


def test_methods_are_enough_when_the_contract_is_a_protocol() -> None:
    found = load("elsewhere.all", "second", Sends, what="sender")  # type: ignore[type-abstract]
    assert found.__name__ == "Good"
    with pytest.raises(ExtensionError, match="the sender `first`"):
        load("elsewhere.all", "first", Sends, what="sender")  # type: ignore[type-abstract]
    with pytest.raises(ExtensionError, match="the other `second`"):
        load("elsewhere.all", "second", Other, what="other")  # type: ignore[type-abstract]


def test_the_others_are_loaded_by_name_when_some_of_a_group_are_broken() -> None:
    loaded, failures = load_all("elsewhere.all")
    assert [(name, found.__name__) for name, found in loaded.items()] == [
        ("first", "NotOne"),
        ("second", "Good"),
    ]
    assert ["`absent`" in failures[0].text, "`broken`" in failures[1].text] == [True, True]
    assert all("pip uninstall elsewhere" in failure.hint for failure in failures)
    assert load_all("elsewhere.none") == ({}, [])
