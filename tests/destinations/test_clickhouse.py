"""The ClickHouse engine passes the conformance suite, and what is its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.destinations.base import Destination
from headwater.destinations.clickhouse.destination import ClickHouseDestination, ClickHouseSettings
from headwater.destinations.clickhouse.sql import DIALECT, bare
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.errors import TableRefused
from headwater.testing.destinations import DestinationConformance, Subject, staged_load
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
        found = self.engine.query(f"SELECT * FROM `{self.database}`.{DIALECT.quoted(table)} {final}")
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


@pytest.fixture
def subject(clickhouse: ClickHouseEngine) -> Iterator[ClickHouseSubject]:
    subject = ClickHouseSubject(clickhouse)
    subject.destination.connect()
    yield subject
    subject.close()


@pytest.mark.parametrize("engine", ["Log", "MergeTree PARTITION BY v % 3 ORDER BY v", "Memory"])
def test_rows_are_stored_once_when_the_engine_is_the_users_choice(
    subject: ClickHouseSubject, tmp_path: Path, engine: str
) -> None:
    subject.run(f"CREATE TABLE own (v Int64, w Int64 MATERIALIZED v * 2) ENGINE = {engine}")
    subject.destination.adopt_tables = ("own",)
    made = subject.destination.patch(table_of("own", [Column("v", Kind.INT64)], ["v"]))
    assert made.key == ()
    load = staged_load(tmp_path, made, [{"v": i} for i in range(10)], id="once")
    assert [subject.destination.load(load).already for _ in range(2)] == [False, True]
    assert sorted(row["v"] for row in subject.rows("own")) == list(range(10))


def test_explicit_types_are_made_as_written_when_they_wrap_others(
    subject: ClickHouseSubject, tmp_path: Path
) -> None:
    types = {"a": "LowCardinality(String)", "b": "LowCardinality(Nullable(String))", "c": "DateTime('UTC')"}
    made = subject.destination.patch(
        table_of("t", [Column(name, Kind.STRING, type) for name, type in types.items()])
    )
    assert {name: column.sql_type for name, column in made.columns.items()} == types
    rows = [{"a": "x", "b": "y", "c": "2026-11-16T10:00:00.123Z"}, {"c": "never"}]
    kinds = dict.fromkeys(types, Kind.STRING)
    result = subject.destination.load(staged_load(tmp_path, made, rows, kinds=kinds))
    assert result.unmapped == 1
    assert [(row["a"], row["b"]) for row in subject.rows("t")] == [("x", "y"), ("", None)]
    times = [row["c"].replace(tzinfo=dt.UTC) for row in subject.rows("t")]
    assert times == [dt.datetime(2026, 11, 16, 10, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]


def test_nothing_is_left_beside_the_tables_when_loads_are_done(
    subject: ClickHouseSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(table_of("t", [Column("k", Kind.STRING)], ["k"]))
    subject.destination.load(staged_load(tmp_path, made, [{"k": "a"}]))
    subject.destination.patch(table_of("t", [Column("k", Kind.STRING)]))
    found = subject.engine.query(f"SELECT name FROM system.tables WHERE database = '{subject.database}'")
    assert sorted(row["name"] for row in found) == ["_headwater_loads", "_headwater_tables", "t"]


def test_columns_keep_their_values_when_they_are_widened(subject: ClickHouseSubject, tmp_path: Path) -> None:
    kinds = {"id": Kind.INT64, "a": Kind.INT64, "b": Kind.INT64, "c": Kind.FLOAT64, "d": Kind.INT64}
    destination, columns = subject.destination, [Column(name, kind) for name, kind in kinds.items()]
    made = destination.patch(table_of("t", columns, ["id"]))
    row = {"id": 1, "a": 5, "b": 5, "c": 1.5, "d": (1 << 53) + 1}
    destination.load(staged_load(tmp_path, made, [row, {"id": 2, "a": -(1 << 53), "c": 1e300}]))
    wanted = {"a": Kind.FLOAT64, "b": Kind.STRING, "c": Kind.STRING, "d": Kind.FLOAT64}
    widened = destination.widen("t", wanted, max_rows=2)
    # a double would change the integer
    assert {name: widened.columns[name].kind for name in wanted} == wanted | {"d": Kind.STRING}
    found = sorted(subject.rows("t"), key=lambda row: int(row["id"]))
    assert found == [
        {"id": 1, "a": 5.0, "b": "5", "c": "1.5", "d": str((1 << 53) + 1)},
        {"id": 2, "a": -float(1 << 53), "b": None, "c": "1e300", "d": None},
    ]
    load = staged_load(tmp_path, widened, [{"id": 2, "a": 0.5, "b": "five"}], id="later")
    assert destination.load(load).unmapped == 0


def test_a_column_stays_when_its_values_would_become_others(
    subject: ClickHouseSubject, tmp_path: Path
) -> None:
    columns = {"id": Kind.INT64, "flag": Kind.BOOL, "at": Kind.TIMESTAMP}
    made = subject.destination.patch(
        table_of("t", [Column(name, kind) for name, kind in columns.items()], ["id"])
    )
    for name in columns:
        with pytest.raises(TableRefused, match=name):
            subject.destination.widen("t", {name: Kind.STRING}, max_rows=2)
    assert subject.destination.table("t") == made
