"""DuckDB passes the conformance suite, and what is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from headwater.testing.destinations import DestinationConformance, Subject
from headwater.warehouse.base import Destination
from headwater.warehouse.duckdb import DuckDBDestination, DuckDBSettings


class DuckDBSubject(Subject):
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "data" / "test.duckdb")
        self.destination = self.another()

    def another(self) -> Destination:
        return DuckDBDestination("duck", DuckDBSettings(path=self.path))

    def rows(self, table: str) -> list[dict[str, Any]]:
        with duckdb.connect(self.path) as connection:
            name = '"' + table.replace('"', '""') + '"'
            found = connection.execute(f"SELECT * FROM {name}")
            names = [column[0] for column in found.description or []]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def run(self, statement: str) -> None:
        with duckdb.connect(self.path) as connection:
            connection.execute(statement)

    def unreachable(self) -> Destination:
        folder = Path(self.path).parent / "folder.duckdb"
        folder.mkdir()
        return DuckDBDestination("away", DuckDBSettings(path=str(folder)))


class TestDuckDB(DestinationConformance):
    small_integer = "SMALLINT"

    def make(self, tmp_path: Path) -> Subject:
        return DuckDBSubject(tmp_path)
