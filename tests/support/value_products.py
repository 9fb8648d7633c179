"""Reads tables of three products by their own clients, for tests that compare each value."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psycopg
from psycopg.rows import dict_row

from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.postgres import PostgresServer
from tests.support.value_oracle import Row

__all__ = ["Product", "three_products"]

_KIND_OF_TYPE = {
    "bigint": "int",
    "smallint": "int",
    "int16": "int",
    "int64": "int",
    "double": "float",
    "decimal": "float",
    "real": "real",
    "float": "real",
    "numeric": "float",
    "float64": "float",
    "varchar": "text",
    "text": "text",
    "string": "text",
    "json": "json",
    "jsonb": "json",
    "boolean": "bool",
    "uint8": "bool",
}


class Product(NamedTuple):
    """A destination, and a reader of its tables that is not the destination's."""

    name: str
    options: dict[str, str]
    query: Callable[[str], list[dict[str, Any]]]

    def rows(self, table: str) -> tuple[dict[str, str], dict[int, Row]]:
        """The kind of each column, and the rows by `n`."""
        relation, types = self._structure(table)
        kinds = {
            name: _KIND_OF_TYPE.get(re.split(r"[^a-z0-9]", type)[0], "time") for name, type in types.items()
        }
        selected = ", ".join(self._selected(name, kind) for name, kind in kinds.items())
        found = {}
        for row in self.query(f"SELECT {selected} FROM {relation}"):
            unmapped = row.pop("_unmapped_data", None)
            found[int(row["n"])] = Row(row, unmapped, keeps_bytes=self.name != "postgres")
        return kinds, found

    def _quoted(self, name: str) -> str:
        return f"`{name}`" if self.name == "clickhouse" else f'"{name}"'

    def _selected(self, name: str, kind: str) -> str:
        quoted = self._quoted(name)
        if kind == "time":
            microseconds = {
                "duckdb": f"epoch_us(CAST({quoted} AS TIMESTAMP))",
                "postgres": f"(extract(epoch FROM {quoted}) * 1000000)::numeric",
                "clickhouse": f"toUnixTimestamp64Micro(toDateTime64({quoted}, 6, 'UTC'))",
            }
            return f"{microseconds[self.name]} AS {quoted}"
        return f"CAST({quoted} AS text) AS {quoted}" if kind in ("json", "real") else quoted

    def _structure(self, table: str) -> tuple[str, dict[str, str]]:
        if self.name == "clickhouse":
            database = self.options["database"]
            found = self.query(
                f"SELECT name, type FROM system.columns WHERE database = '{database}' AND table = '{table}'"
            )
            types = {row["name"]: re.sub(r"Nullable\((.*)\)", r"\1", row["type"]).lower() for row in found}
            return f"`{database}`.`{table}`", types
        schema = self.options.get("schema", "main")
        found = self.query(
            "SELECT column_name AS name, data_type AS type FROM information_schema.columns "
            f"WHERE table_schema = '{schema}' AND table_name = '{table}'"
        )
        return f'"{schema}"."{table}"', {row["name"]: row["type"].lower() for row in found}


@contextmanager
def three_products(
    folder: Path, postgres: PostgresServer, clickhouse: ClickHouseEngine
) -> Iterator[list[Product]]:
    """DuckDB, Postgres and ClickHouse, each with a place of its own."""
    own, path = f"values_{uuid.uuid4().hex[:12]}", folder / "dwh.duckdb"

    def in_duckdb(query: str) -> list[dict[str, Any]]:
        with duckdb.connect(str(path)) as connection:
            found = connection.execute(query)
            names = [column[0] for column in found.description or []]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    with psycopg.connect(postgres.url, row_factory=dict_row, autocommit=True) as connection:

        def in_postgres(query: str) -> list[dict[str, Any]]:
            return list(connection.execute(query.encode()).fetchall())

        yield [
            Product("duckdb", {"path": str(path)}, in_duckdb),
            Product("postgres", {"url": postgres.url, "schema": own}, in_postgres),
            Product("clickhouse", {"url": clickhouse.url, "database": own}, clickhouse.query),
        ]
