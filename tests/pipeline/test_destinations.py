"""The same batch on every product: kinds, conversions and names, all the way from a file to a table."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import destination_class, load_destination
from headwater.destinations.clickhouse.sql import bare
from headwater.destinations.column_types import Kind, promote
from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.postgres import PostgresServer
from tests.pipeline.rig import Rig

PRODUCTS = ("duckdb", "postgres", "clickhouse", "delta", "iceberg")
# Everything before the load is the same for all products, and the destination suites run on each of them.
PARAMS = ["duckdb", *(pytest.param(name, marks=pytest.mark.long) for name in PRODUCTS[1:])]
# The table of implicit types (arrays are texts), with times and DuckDB.
TYPES = {
    "postgres": ("text", "numeric(38,18)", "bigint", "boolean", "timestamp with time zone"),
    "clickhouse": ("String", "Float64", "Int64", "UInt8", "DateTime64(6, 'UTC')"),
    "duckdb": ("VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN", "TIMESTAMP"),
    "delta": ("string", "double", "long", "boolean", "timestamp"),
    "iceberg": ("string", "double", "long", "boolean", "timestamptz"),
}
KINDS = (Kind.STRING, Kind.FLOAT64, Kind.INT64, Kind.BOOL, Kind.TIMESTAMP)
MOMENT = "2026-11-16T10:00:00.123456Z"
SAMPLES: dict[Kind, Any] = {
    Kind.BOOL: True,
    Kind.INT64: 7,
    Kind.FLOAT64: 2.5,
    Kind.STRING: "many",
    Kind.TIMESTAMP: MOMENT,
}
TEXTS = {Kind.BOOL: "true", Kind.INT64: "7", Kind.FLOAT64: "2.5", Kind.STRING: "many", Kind.TIMESTAMP: MOMENT}
HOSTILE = [
    "robert'); DROP TABLE events; --",
    'quote " and "" two',
    "back`tick\\slash",
    "/* comment",
    "rtl \u202e mark \u200f",
    "nul \0 inside",
    "line\nbreak",
    "${env.HOME} {{ x }} %s $1",
    "k" * 10_000,
    "日本語",
]


@dataclass
class Product:
    """A pipeline whose only destination is of one product, in a place of its own."""

    name: str
    rig: Rig
    options: dict[str, str]

    def load(self, *events: Any, **destination: Any) -> list[dict[str, Any]]:
        """Load a file with these events; all rows of `events` then, without what is NULL."""
        settings = self.rig.settings({"type": self.name, "options": self.options} | destination)
        self.rig.file(events)
        report = self.rig.cycle(settings)
        assert report.is_complete, report.errors
        return self.rows("events")

    def types(self) -> dict[str, str]:
        destination = load_destination(
            self.rig.settings({"type": self.name, "options": self.options}).destinations[0]
        )
        destination.connect()
        try:
            table = destination.table("events")
        finally:
            destination.close()
        assert table is not None
        return {
            name: bare(column.sql_type) if self.name == "clickhouse" else column.sql_type
            for name, column in table.columns.items()
        }

    def rows(self, table: str) -> list[dict[str, Any]]:
        raise NotImplementedError


class DuckDB(Product):
    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.rig.rows(table)


class Postgres(Product):
    def rows(self, table: str) -> list[dict[str, Any]]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.options["url"], row_factory=dict_row) as connection:
            name = psycopg.sql.Identifier(self.options["schema"], table)
            found = connection.execute(psycopg.sql.SQL("SELECT * FROM {} ORDER BY n").format(name)).fetchall()
        return [{key: value for key, value in row.items() if value is not None} for row in found]


class ClickHouse(Product):
    engine: ClickHouseEngine

    def rows(self, table: str) -> list[dict[str, Any]]:
        name = f"`{self.options['database']}`.`{table}`"
        # an older row of a key stays until parts are merged; FINAL is how a query asks for the newest
        [kept] = self.engine.query(
            f"SELECT engine FROM system.tables WHERE database = '{self.options['database']}' "
            f"AND name = '{table}'"
        )
        final = "FINAL" if kept["engine"].startswith("Replacing") else ""
        found = self.engine.query(f"SELECT * FROM {name} {final} ORDER BY n")
        return [{key: value for key, value in row.items() if value is not None} for row in found]


class Delta(Product):
    def rows(self, table: str) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        found = DeltaTable(f"{self.options['path']}/{table}").to_pyarrow_table().sort_by("n").to_pylist()
        return [{key: value for key, value in row.items() if value is not None} for row in found]


class Iceberg(Product):
    def rows(self, table: str) -> list[dict[str, Any]]:
        from pyiceberg.catalog import load_catalog

        uri = f"sqlite:///{self.options['path']}/catalog.db"
        with load_catalog("headwater", type="sql", uri=uri) as catalog:
            found = catalog.load_table(("headwater", table)).scan().to_arrow().sort_by("n").to_pylist()
        return [{key: value for key, value in row.items() if value is not None} for row in found]


@pytest.fixture(params=PARAMS)
def product(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Product]:
    own = f"test_{uuid.uuid4().hex}"
    if request.param == "duckdb":
        yield DuckDB("duckdb", rig, {"path": str(tmp_path / "dwh.duckdb")})
    elif request.param == "delta":
        yield Delta("delta", rig, {"path": str(tmp_path / "lake")})
    elif request.param == "iceberg":
        yield Iceberg("iceberg", rig, {"path": str(tmp_path / "lake")})
    elif request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        yield Postgres("postgres", rig, {"url": server.url, "schema": own})
    else:
        engine: ClickHouseEngine = request.getfixturevalue("clickhouse")
        made = ClickHouse("clickhouse", rig, {"url": engine.url, "database": own})
        made.engine = engine
        yield made


def plain(value: Any) -> Any:
    """Values of three clients as one: numerics are floats, and times have no zone."""
    if isinstance(value, Decimal):
        return float(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_types_are_the_documented_ones_when_nothing_is_cast(name: str) -> None:
    types = destination_class(name).capabilities.types
    assert tuple(types[kind] for kind in KINDS) == TYPES[name]


def test_all_pairs_of_kinds_are_promoted_and_converted_when_they_meet_in_a_batch(product: Product) -> None:
    pairs = list(itertools.product(KINDS, KINDS))
    first = {"n": 1, "tags": ["a", 1]} | {f"{a}_{b}".lower(): SAMPLES[a] for a, b in pairs}
    second = {"n": 2, "tags": []} | {f"{a}_{b}".lower(): SAMPLES[b] for a, b in pairs}
    rows = product.load(first, second)
    named = dict(zip(KINDS, TYPES[product.name], strict=True))
    types = product.types()
    assert types.pop("tags") == named[Kind.STRING], "arrays are texts"
    assert types.pop("n") == named[Kind.INT64]
    assert types == {f"{a}_{b}".lower(): named[promote(a, b)] for a, b in pairs}
    for row, place in zip(rows, (0, 1), strict=True):
        assert json.loads(row["tags"]) == (["a", 1], [])[place]
        for pair in pairs:
            kind, own = promote(*pair), pair[place]
            expected: Any = TEXTS[own] if kind is Kind.STRING else SAMPLES[own]
            if kind is Kind.TIMESTAMP:
                expected = datetime(2026, 11, 16, 10, 0, 0, 123456)  # noqa: DTZ001
            found = plain(row[f"{pair[0]}_{pair[1]}".lower()])
            assert found == expected, f"{own} beside {pair[1 - place]}"


def test_names_and_values_are_only_that_when_they_are_hostile(product: Product) -> None:
    rows = product.load(
        {"n": 1} | {name: name for name in HOSTILE}, {"n": 2, "text": HOSTILE[0], "nested": {HOSTILE[1]: 1}}
    )
    assert len(rows) == 2
    kept = {str(value) for value in rows[0].values()}
    # every key has its own column: a digest replaces letters that a name cannot have
    lacking = set(HOSTILE) - kept
    # a product that has no NUL in texts keeps the JSON of such a text aside
    assert all("\0" in text for text in lacking)
    assert not lacking or "u0000" in str(rows[0]["_unmapped_data"])
    assert rows[1]["text"] == HOSTILE[0]
    longest = destination_class(product.name).capabilities.max_identifier_length
    assert all(len(name.encode()) <= longest for name in product.types())


def test_the_last_event_wins_on_every_product_when_a_key_repeats(product: Product) -> None:
    rows = product.load({"n": 1, "id": "a"}, {"n": 2, "id": "b"}, {"n": 3, "id": "a"}, primary_key=["id"])
    assert sorted((row["id"], row["n"]) for row in rows) == [("a", 3), ("b", 2)]
    rows = product.load({"n": 4, "id": "b"}, primary_key=["id"])
    assert sorted((row["id"], row["n"]) for row in rows) == [("a", 3), ("b", 4)]
