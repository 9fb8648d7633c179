"""The ClickHouse engine passes the conformance suite, and what is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.testing.destinations import DestinationConformance, Subject
from headwater.warehouse.base import Destination
from headwater.warehouse.clickhouse import ClickHouseDestination, ClickHouseSettings
from headwater.warehouse.clickhouse_sql import bare, quoted
from tests.parts.clickhouse import ClickHouseEngine


class ClickHouseSubject(Subject):
    def __init__(self, engine: ClickHouseEngine) -> None:
        self.engine, self.database = engine, engine.database()
        self.destination = self.another()

    def another(self) -> Destination:
        return ClickHouseDestination("ch", ClickHouseSettings(url=self.engine.url, database=self.database))

    def rows(self, table: str) -> list[dict[str, Any]]:
        (engine,) = self.engine.query(
            f"SELECT engine FROM system.tables WHERE database = '{self.database}' "
            f"AND name = unhex('{table.encode().hex()}')"
        )
        final = "FINAL" if "Replacing" in engine["engine"] else ""
        found = self.engine.query(f"SELECT * FROM `{self.database}`.{quoted(table)} {final}")
        return [{name: value for name, value in row.items() if name != "_headwater_keyless"} for row in found]

    def run(self, statement: str) -> None:
        self.engine.client.command(f"USE `{self.database}`")
        self.engine.client.command(statement)

    def unreachable(self) -> Destination:
        return ClickHouseDestination("away", ClickHouseSettings(url="http://127.0.0.1:1"))

    def close(self) -> None:
        super().close()
        self.engine.client.command("USE default")
        self.engine.client.command(f"DROP DATABASE `{self.database}` SYNC")


class TestClickHouse(DestinationConformance):
    small_integer = "Nullable(Int16)"
    keyed_table = "CREATE TABLE {} (id Int64, note Nullable(String)) ENGINE = ReplacingMergeTree ORDER BY id"
    strict_table = (
        "CREATE TABLE {} (number Nullable(Int64), note Nullable(String), "
        "CONSTRAINT lucky CHECK number <> 13) ENGINE = MergeTree ORDER BY tuple()"
    )

    @pytest.fixture(autouse=True)
    def engine(self, clickhouse: ClickHouseEngine) -> None:
        self.clickhouse = clickhouse

    def make(self, tmp_path: Path) -> Subject:
        return ClickHouseSubject(self.clickhouse)

    def bare_type(self, sql_type: str) -> str:
        return bare(sql_type)  # columns are made to take NULL
