"""docs/destinations.md and docs/extension-points.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import destination_class
from headwater.extend.destinations import UNMAPPED, Kind, SqlDestination
from headwater.extend.enrichers import Enricher, PipelineSettings
from headwater.pipeline.steps.enrich.ip_lookup import IpLookup
from headwater.pipeline.steps.enrich.user_agent import UserAgentParse
from headwater.testing.destinations import staged_load
from headwater.testing.destinations.subject import keyed
from tests.destinations.doc_examples import example

DOCS = Path(__file__).parents[2] / "docs"
TYPES = ["duckdb", "postgres", "clickhouse", "snowflake", "bigquery", "redshift", "delta", "iceberg"]
ROWS = {"STRING": Kind.STRING, "TIMESTAMP": Kind.TIMESTAMP, "`_unmapped_data`": Kind.JSON} | {
    kind.value: kind for kind in (Kind.FLOAT64, Kind.INT64, Kind.BOOL)
}


def cells(page: str, first: str) -> list[str]:
    (row,) = re.findall(rf"^\| {re.escape(first)}[^|]*\|(.*)\|$", page, re.MULTILINE)
    return [cell.strip().strip("`") for cell in row.split("|")]


@pytest.mark.parametrize(("first", "kind"), ROWS.items(), ids=str)
def test_the_types_are_the_products_when_the_page_is_read(first: str, kind: Kind) -> None:
    page = (DOCS / "destinations.md").read_text(encoding="utf-8")
    assert cells(page, first) == [destination_class(name).capabilities.types[kind] for name in TYPES]


def test_the_lengths_of_names_are_the_products_when_the_page_is_read() -> None:
    page = (DOCS / "destinations.md").read_text(encoding="utf-8")
    listed = [int(cell) for cell in cells(page, "longest name, bytes")]
    assert listed == [destination_class(name).capabilities.max_identifier_length for name in TYPES]


@pytest.mark.parametrize(
    ("rule", "kind"), [("`ip_lookup`", IpLookup), ("`user_agent_parse`", UserAgentParse)]
)
def test_the_fields_of_a_rule_are_named_when_the_page_is_read(rule: str, kind: type[Enricher]) -> None:
    page = (DOCS / "extension-points.md").read_text(encoding="utf-8")
    listed = cells(page, rule)[0]
    assert {name for name in kind.fields if f"{name}" in listed} == set(kind.fields)


def test_the_enricher_of_the_page_finds_when_it_is_run() -> None:
    enricher: Enricher = example("class Domain")["Domain"](PipelineSettings())
    enricher.open()
    assert enricher.lookup(["a@Example.org", "b@gmail.com", "no address"]) == [
        {"domain": "example.org", "is_company": True},
        {"domain": "gmail.com", "is_company": False},
        None,
    ]


def test_the_destination_of_the_page_stores_rows_once_when_it_is_run(tmp_path: Path) -> None:
    names = example("class SQLiteDestination")
    path = str(tmp_path / "test.sqlite")
    destination: SqlDestination = names["SQLiteDestination"]("dwh", names["SQLiteOptions"](path=path))
    destination.connect()
    wanted = keyed("t", at=Kind.TIMESTAMP)
    made = destination.patch(wanted)
    assert (destination.patch(wanted), made.key) == (made, ("k",))
    rows: list[dict[str, Any]] = [
        {"k": "a", "v": "1"},
        {"k": "b", "v": "many"},
        {"k": None, "v": "3"},
        {"k": "a", "v": None},
    ]
    load = staged_load(tmp_path, made, rows, kinds={"k": Kind.STRING, "v": Kind.STRING})
    assert (destination.load(load).unmapped, destination.load(load).already) == (1, True)
    stored = destination.execute(f"SELECT k, v, {UNMAPPED} FROM t ORDER BY k")
    assert stored == [(None, 3, None), ("a", 1, None), ("b", None, '{"v":"many"}')]
    assert destination.totals()["t"].rows == 4
    destination.close()
