"""DuckDB passes the conformance suite, and what is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.duckdb import DuckDBDestination, DuckDBSettings
from headwater.destinations.table import Column, table_of
from headwater.errors import DestinationUnavailable, TableRefused
from headwater.testing.destinations import DestinationConformance, Subject, staged_load


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


def test_a_retry_is_advised_when_another_process_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    destination = DuckDBDestination("duck", DuckDBSettings(path=str(path)))
    assert other.stdout is not None
    assert other.stdin is not None
    try:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DestinationUnavailable, match="close that") as caught:
            destination.connect()
        assert caught.value.retryable
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
        other.stdin.close()
    destination.connect()
    assert destination.table("t") is None
    destination.close()


def test_a_key_is_refused_with_a_hint_when_rows_repeat_it(tmp_path: Path) -> None:
    subject = DuckDBSubject(tmp_path)
    subject.destination.connect()
    columns = [Column("k", Kind.STRING)]
    made = subject.destination.patch(table_of("t", columns))
    subject.destination.load(staged_load(tmp_path, made, [{"k": "a"}, {"k": "a"}]))
    wanted = table_of("t", [*columns, Column("new", Kind.BOOL)], ["k"])
    with pytest.raises(TableRefused, match="repetitions"):
        subject.destination.patch(wanted)
    assert subject.destination.table("t") == made
    subject.close()


def test_columns_are_found_when_a_batch_spells_them_in_another_case(tmp_path: Path) -> None:
    subject = DuckDBSubject(tmp_path)
    subject.destination.connect()
    subject.run('CREATE TABLE t ("Key" VARCHAR PRIMARY KEY, "Value" BIGINT)')
    subject.destination.adopt_tables = ("t",)
    made = subject.destination.patch(table_of("t", [Column("key", Kind.STRING), Column("value", Kind.INT64)]))
    assert list(made.columns) == ["Key", "Value"]
    kinds = {"key": Kind.STRING, "value": Kind.INT64}
    for value in (1, 2):
        rows: list[dict[str, Any]] = [{"key": "a", "value": value - 1}, {"key": "a", "value": value}]
        subject.destination.load(staged_load(tmp_path, made, rows, kinds=kinds))
    assert subject.rows("t") == [{"Key": "a", "Value": 2}]
    subject.close()


def test_values_are_cast_twice_when_a_column_is_made_with_another_type(tmp_path: Path) -> None:
    subject = DuckDBSubject(tmp_path)
    subject.destination.connect()
    wanted = table_of("t", [Column("v", Kind.STRING, "VARCHAR", "DATE")])
    subject.destination.patch(wanted)
    rows = [{"v": "2026-11-16 10:00:00"}, {"v": "never"}]
    result = subject.destination.load(staged_load(tmp_path, wanted, rows))
    assert result.unmapped == 1
    assert [row["v"] for row in subject.rows("t")] == ["2026-11-16", None]
    subject.close()


class WithoutLedger(DuckDBDestination):
    def create_ledger(self, *further: str) -> None:
        raise DestinationUnavailable("the disk is full")


def test_each_connect_fails_when_the_ledger_cannot_be_created(tmp_path: Path) -> None:
    destination = WithoutLedger("duck", DuckDBSettings(path=str(tmp_path / "w.duckdb")))
    for _ in range(2):
        with pytest.raises(DestinationUnavailable, match="the disk is full"):
            destination.connect()


def storage_version(path: Path) -> int:
    """The version of the format in the header of a database file."""
    return int.from_bytes(path.read_bytes()[12:20], "little")


def test_a_new_file_can_be_opened_by_older_releases_when_nothing_else_is_configured(tmp_path: Path) -> None:
    versions = {}
    for version in ("", "v1.4.0", "v1.0.0"):
        path = tmp_path / f"{version or 'default'}.duckdb"
        settings = DuckDBSettings(path=str(path))
        if version:
            settings = DuckDBSettings(path=str(path), storage_compatibility_version=version)
        destination = DuckDBDestination("duck", settings)
        for _ in range(2):
            destination.connect()
            destination.patch(table_of("t", [Column("v", Kind.INT64)]))
            destination.close()
        versions[version] = storage_version(path)
    assert versions == {"": 67, "v1.4.0": 67, "v1.0.0": 64}


def test_a_file_keeps_its_format_when_it_exists(tmp_path: Path) -> None:
    path = tmp_path / "newest.duckdb"
    with duckdb.connect() as memory:
        memory.execute(f"ATTACH '{path}' AS made (STORAGE_VERSION 'latest')")
    before = storage_version(path)
    destination = DuckDBDestination("duck", DuckDBSettings(path=str(path)))
    destination.connect()
    destination.patch(table_of("t", [Column("v", Kind.INT64)]))
    destination.close()
    assert storage_version(path) == before
