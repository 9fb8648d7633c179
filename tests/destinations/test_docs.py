"""docs/destinations.md and docs/extension-points.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import destination_class
from headwater.destinations.column_types import Kind
from headwater.pipeline.steps.enrich.base import Enricher
from headwater.pipeline.steps.enrich.ip_lookup import IpLookup
from headwater.pipeline.steps.enrich.user_agent import UserAgentParse
from headwater.settings import PipelineSettings

DOCS = Path(__file__).parents[2] / "docs"
TYPES = ["duckdb", "postgres", "clickhouse", "snowflake", "bigquery", "redshift"]
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
    told = [int(cell) for cell in cells(page, "longest name, bytes")]
    assert told == [destination_class(name).capabilities.max_identifier_length for name in TYPES]


@pytest.mark.parametrize(
    ("rule", "kind"), [("`ip_lookup`", IpLookup), ("`user_agent_parse`", UserAgentParse)]
)
def test_the_fields_of_a_rule_are_named_when_the_page_is_read(rule: str, kind: type[Enricher]) -> None:
    page = (DOCS / "extension-points.md").read_text(encoding="utf-8")
    told = cells(page, rule)[0]
    assert {name for name in kind.fields if f"{name}" in told} == set(kind.fields)


def test_the_enricher_of_the_page_finds_when_it_is_run() -> None:
    page = (DOCS / "extension-points.md").read_text(encoding="utf-8")
    code = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Enricher" in code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "extension-points.md", "exec"), names)
    enricher: Enricher = names["Domain"](PipelineSettings())
    enricher.open()
    assert enricher.lookup(["a@Example.org", "b@gmail.com", "nobody"]) == [
        {"domain": "example.org", "is_company": True},
        {"domain": "gmail.com", "is_company": False},
        None,
    ]
