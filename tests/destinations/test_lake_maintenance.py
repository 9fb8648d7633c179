"""Maintenance joins and removes files of tables, and changes no row, also while loads are under way."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.cli.main import cli
from headwater.destinations.base import Maintained
from headwater.destinations.column_types import Kind
from headwater.destinations.lake.lake_destination import LakeDestination
from headwater.destinations.table import Column, table_of
from headwater.errors import TableNotAllowed, TableRefused
from headwater.testing.destinations import staged_load
from headwater.testing.destinations.subject import by, table
from tests.destinations.test_delta import DeltaSubject
from tests.destinations.test_iceberg import IcebergSubject

WEEK = 7 * 24 * 3600.0
LakeSubject = DeltaSubject | IcebergSubject


@pytest.fixture(params=["delta", "iceberg"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LakeSubject]:
    made: LakeSubject = DeltaSubject(tmp_path) if request.param == "delta" else IcebergSubject(tmp_path)
    made.destination.connect()
    yield made
    made.close()


def load_rows(subject: LakeSubject, folder: Path, loads: int, key: tuple[str, ...] = ()) -> None:
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64), Column("w", Kind.INT64)], key))
    for number in range(loads):
        subject.destination.load(staged_load(folder, made, [{"v": number, "w": number}], id=f"id {number}"))


def parquet_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "lake").rglob("*.parquet") if ".checkpoint." not in path.name]


def make_old(folder: Path) -> None:
    for path in (folder / "lake").rglob("*"):
        os.utime(path, (time.time() - 2 * WEEK,) * 2)


def test_small_files_become_one_and_loads_are_known_when_a_table_is_maintained(
    subject: LakeSubject, tmp_path: Path
) -> None:
    load_rows(subject, tmp_path, 12)
    assert subject.destination.maintained_tables() == ["t"]
    done = subject.destination.maintain("t", keep_seconds=WEEK)
    assert done == Maintained(joined=12, written=1)
    assert len(parquet_files(tmp_path)) == 13  # readers of older versions may use the small ones
    make_old(tmp_path)
    again = subject.destination.maintain("t", keep_seconds=WEEK)
    assert (again.joined, again.written) == (0, 0)
    load_rows(subject, tmp_path, 12)
    assert by(subject.rows("t"), "v") == [(number,) for number in range(12)]
    assert subject.destination.totals()["t"].loads == 12


def test_files_that_no_version_names_are_removed_when_they_are_old(
    subject: LakeSubject, tmp_path: Path
) -> None:
    load_rows(subject, tmp_path, 3)
    [some, *_] = parquet_files(tmp_path)
    orphan, fresh = some.with_name("orphan.parquet"), some.with_name("fresh.parquet")
    orphan.write_bytes(some.read_bytes())
    make_old(tmp_path)
    fresh.write_bytes(some.read_bytes())  # of a load under way
    done = subject.destination.maintain("t", keep_seconds=0)
    assert done.removed >= 1
    assert fresh.exists()
    assert not orphan.exists()
    assert by(subject.rows("t"), "v") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("key", [(), ("v",)], ids=["append", "upsert"])
def test_no_row_is_lost_or_doubled_when_loads_are_under_way(
    subject: LakeSubject, tmp_path: Path, key: tuple[str, ...]
) -> None:
    load_rows(subject, tmp_path, 3, key)
    made = subject.destination.table("t")
    assert made is not None
    errors: list[Exception] = []
    ended = threading.Event()

    def maintain() -> None:
        other: LakeDestination = subject.another()
        try:
            other.connect()
            while not ended.is_set():
                other.maintain("t", keep_seconds=0)
        except Exception as error:
            errors.append(error)
        finally:
            other.close()

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        for number in range(3, 9):
            rows = [{"v": number, "w": number}] + ([{"v": number - 3, "w": -number}] if key else [])
            subject.destination.load(staged_load(tmp_path, made, rows, id=f"id {number}"))
    finally:
        ended.set()
        thread.join()
    assert errors == []
    expected = [(v, -(v + 3) if key and v < 6 else v) for v in range(9)]
    assert by(subject.rows("t"), "v", "w") == expected
    assert subject.destination.totals()["t"].loads == 9


def test_versions_expire_when_they_are_old(tmp_path: Path) -> None:
    subject = IcebergSubject(tmp_path)
    subject.destination.connect()
    load_rows(subject, tmp_path, 5)
    from headwater.destinations.lake.iceberg import IcebergLakeTable

    opened = subject.destination.open("t")
    assert isinstance(opened, IcebergLakeTable)
    assert len(manifest_lists(tmp_path)) == 5
    expired, removed = opened.remove_old(-60.0)  # also what is a minute younger than now
    assert (expired, removed >= 4) == (4, True)
    assert len(manifest_lists(tmp_path)) == 1
    assert len(subject.stored("t").metadata.snapshots) == 1
    assert by(subject.rows("t"), "v") == [(number,) for number in range(5)]
    load_rows(subject, tmp_path, 5)
    assert subject.destination.totals()["t"].loads == 5
    subject.close()


def manifest_lists(folder: Path) -> list[Path]:
    return list((folder / "lake").rglob("snap-*.avro"))


def test_a_table_of_another_program_is_left_alone_when_it_is_named(
    subject: LakeSubject, tmp_path: Path
) -> None:
    type = "int64" if isinstance(subject, DeltaSubject) else "long"
    subject.run(f"create theirs id:{type}")
    assert subject.destination.maintained_tables() == []
    with pytest.raises(TableNotAllowed):
        subject.destination.maintain("theirs", keep_seconds=WEEK)
    with pytest.raises(TableRefused, match="does not exist"):
        subject.destination.maintain("nothing", keep_seconds=WEEK)


def settings_file(folder: Path) -> Path:
    path = folder / "headwater.yml"
    lake = {"id": "lake", "type": "delta", "path": str(folder / "lake")}
    duck = {"id": "dwh", "type": "duckdb", "path": str(folder / "dwh.duckdb")}
    path.write_text(json.dumps({"data_dir": str(folder), "destinations": [lake, duck]}))
    return path


def test_all_tables_are_maintained_when_the_command_is_run(tmp_path: Path) -> None:
    subject = DeltaSubject(tmp_path)
    subject.destination.connect()
    load_rows(subject, tmp_path, 4)
    made = subject.destination.patch(table("u", v=Kind.INT64))
    subject.destination.load(staged_load(tmp_path, made, [{"v": 1}]))
    subject.close()
    command = ["-c", str(settings_file(tmp_path)), "tables", "maintain"]
    done = CliRunner().invoke(cli, [*command, "--json"])
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [(each["table"], each["joined"]) for each in found] == [("t", 4), ("u", 0)]
    missing = CliRunner().invoke(cli, [*command, "--destination", "lake", "u", "nothing"])
    assert missing.exit_code == 1
    assert "lake/u: 0 file(s)" in missing.stdout
    assert CliRunner().invoke(cli, [*command, "--keep", "5m"]).exit_code == 2
