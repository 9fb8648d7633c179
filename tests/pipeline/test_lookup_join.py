"""Lookup enrichment: once per distinct value, and joined back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headwater.destinations.column_types import Kind
from headwater.destinations.duckdb import DuckDBDestination
from headwater.pipeline.steps.batch_schema import batch_columns
from headwater.pipeline.steps.enrich import lookup_join as lookup
from headwater.pipeline.steps.enrich.base import Enricher, Found
from headwater.pipeline.steps.enrich.lookup_join import Rule, look_up
from headwater.pipeline.steps.fit_table import fit_table
from headwater.pipeline.steps.mapping import map_fields
from headwater.pipeline.steps.parse_events import find_fields
from headwater.pipeline.steps.project import project
from headwater.settings import DestinationSettings, MappingSettings, PipelineSettings
from tests.pipeline.rig import BROWSER_KEY, Rig

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"


class Lengths(Enricher):
    """How long a text is; empty texts are not known. Notes every value it was asked for in a file."""

    fields: ClassVar[Mapping[str, Kind]] = {
        "length": Kind.INT64,
        "half": Kind.FLOAT64,
        "upper": Kind.STRING,
        "never": Kind.STRING,
    }

    def __init__(self, settings: PipelineSettings, path: Path) -> None:
        self._path = path

    def lookup(self, values: Sequence[str]) -> list[Found]:
        with self._path.open("a") as file:
            file.write("".join(f"{value}\n" for value in values))
        return [{"length": len(v), "half": len(v) / 2, "upper": v.upper()} if v else None for v in values]

    def asked(self) -> list[str]:
        return sorted(self._path.read_text().splitlines())


def enriched(rig: Rig, rule: Rule, *events: Any) -> tuple[list[dict[str, Any]], str]:
    """Rows and plan of the events with one rule."""
    lines = rig.lines(*events)
    fields = find_fields(lines, rule.browser_keys)
    lookups = look_up(lines, fields.root, [rule], rig.folder / "lookups")
    columns = batch_columns(map_fields(fields.root, MappingSettings()), DuckDBDestination.capabilities)
    settings = DestinationSettings(id="dwh", type="duckdb")
    fit = fit_table(fields.root, columns, None, settings, DuckDBDestination.capabilities)
    frame = project(lines, fit, lookups)
    rows = sorted(frame.collect(), key=lambda row: int(row["_headwater_row"]))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    found = [{name: value for name, value in row.asDict().items() if value is not None} for row in rows]
    for row in found:
        row.pop("_headwater_row")
    return found, plan


@pytest.fixture
def rule(tmp_path: Path) -> Rule:
    return Rule(("a",), ("b", "c"), Lengths(PipelineSettings(), tmp_path / "asked"))


def asked(rule: Rule) -> list[str]:
    assert isinstance(rule.enricher, Lengths)
    return rule.enricher.asked()


def test_each_value_is_looked_up_once_when_many_events_have_it(rig: Rig, rule: Rule) -> None:
    events = [{"a": value} for value in ("x", "yy", "x", "", "yy", "x")]
    rows, plan = enriched(rig, rule, *events, {"other": 1})
    assert rows[1] == {"a": "yy", "b_c_length": 2, "b_c_half": 1.0, "b_c_upper": "YY"}
    assert [row.get("b_c_length") for row in rows] == [1, 2, 1, None, 2, 1, None]
    assert asked(rule) == ["", "x", "yy"]
    # a field that no value has becomes no column
    assert "b_c_never" not in rows[1]
    assert "Python" not in plan
    assert "InArrow" not in plan


def test_workers_look_values_up_when_there_are_many(
    rig: Rig, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "FEW_VALUES", 20)
    count = 100
    rows, plan = enriched(rig, rule, *({"a": f"v{number}"} for number in range(count)))
    assert all(row["b_c_upper"] == row["a"].upper() for row in rows)
    assert len(rows) == len(asked(rule)) == count
    # the results are read from where the lookup over distinct values put them
    assert "InArrow" not in plan


def test_the_events_own_value_wins_when_the_place_is_taken(rig: Rig, rule: Rule) -> None:
    rows, _ = enriched(rig, rule, {"a": "x", "b": {"c": {"length": 9, "more": 1}}}, {"a": "yy"})
    assert [row["b_c_length"] for row in rows] == [9, 2]
    assert rows[0]["b_c_more"] == 1
    assert rows[0]["b_c_upper"] == "X"


def test_nothing_is_looked_up_when_no_event_has_the_field(rig: Rig, rule: Rule) -> None:
    rows, _ = enriched(rig, rule, {"z": 1}, {"a": 5})
    assert rows == [{"z": 1}, {"a": 5}]


def test_browser_events_are_enriched_by_themselves_when_they_carry_the_clients_key(rig: Rig) -> None:
    context = {"user_agent": FIREFOX}
    rig.load(
        {"api_key": BROWSER_KEY, "source_ip": "8.8.8.8", "eventn_ctx": context, "n": 1},
        {"api_key": "web", "source_ip": "8.8.8.8", "eventn_ctx": context, "n": 2},
    )
    browser, server = rig.rows()
    assert browser["eventn_ctx_location_country"] == "US"
    assert browser["eventn_ctx_parsed_ua_ua_family"] == "Firefox"
    assert not [name for name in server if "location" in name or "parsed_ua" in name]


def test_a_configured_rule_is_applied_when_events_come_from_servers(rig: Rig) -> None:
    rules = [{"name": "ip_lookup", "from": "/client/ip", "to": "/geo"}]
    rig.load({"client": {"ip": "8.8.8.8"}}, {"client": {"ip": "not an address"}}, enrichment=rules)
    assert [row.get("geo_country") for row in rig.rows()] == ["US", None]


def test_results_are_mapped_when_the_mapping_moves_them(rig: Rig) -> None:
    rules = [{"name": "ip_lookup", "from": "/ip", "to": "/geo"}]
    moved = {"fields": [{"src": "/geo/country", "dst": "/land", "action": "move"}]}
    rig.load({"ip": "8.8.8.8"}, enrichment=rules, mappings=moved)
    [row] = rig.rows()
    assert row["land"] == "US"
    assert "geo_country" not in row
