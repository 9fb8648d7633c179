"""The SQLite destination of docs/extension-points.md passes the conformance suite."""

from __future__ import annotations

import datetime as dt
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headwater.extend.destinations import Destination, Kind
from headwater.testing.destinations import DestinationConformance, Subject
from tests.destinations.doc_examples import example

EXAMPLE = example("class SQLiteDestination")


def sqlite_destination(id: str, path: str) -> Destination:
    destination: Destination = EXAMPLE["SQLiteDestination"](id, EXAMPLE["SQLiteOptions"](path=path))
    return destination


class SQLiteSubject(Subject):
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "test.sqlite")
        self.destination = self.another()

    def another(self) -> Destination:
        return sqlite_destination("lite", self.path)

    def rows(self, table: str) -> list[dict[str, Any]]:
        made = self.destination.table(table)
        assert made is not None
        times = {name for name, column in made.columns.items() if column.kind is Kind.TIMESTAMP}
        name = table.replace('"', '""')
        with sqlite3.connect(self.path) as connection:
            found = connection.execute(f'SELECT * FROM "{name}"').fetchall()
        connection.close()
        rows = [dict(zip(made.columns, row, strict=True)) for row in found]
        return [
            {name: dt.datetime.fromisoformat(v) if name in times and v else v for name, v in row.items()}
            for row in rows
        ]

    def run(self, statement: str) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute(statement)
        connection.close()

    def unreachable(self) -> Destination:
        return sqlite_destination("nowhere", "/does/not/exist.sqlite")


class TestSQLite(DestinationConformance):
    many_rows = 4_000
    keyed_table = "CREATE TABLE {} (id bigint PRIMARY KEY, note TEXT)"
    strict_table = "CREATE TABLE {} (number bigint CHECK (number <> 13), note TEXT)"

    def make(self, tmp_path: Path) -> Subject:
        return SQLiteSubject(tmp_path)

    def test_a_value_goes_to_unmapped_when_the_explicit_type_does_not_take_it(
        self, subject: Subject, staging: Path
    ) -> None:
        pytest.skip("not applicable: SQLite has no integer type with a smaller range")
