"""One bad event blocks no other, in batch mode as in stream mode, whatever Spark or the destination says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from headwater.destinations.base import Load, Loaded
from headwater.destinations.clickhouse.destination import ClickHouseDestination, ClickHouseSettings
from headwater.destinations.clickhouse.sql import load_tables
from headwater.destinations.duckdb import DuckDBDestination, DuckDBSettings
from headwater.errors import DestinationUnavailable, LoadRefused, TableRefused
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline import load as load_module
from headwater.pipeline.batch import cycle
from headwater.pipeline.batch.file_pieces import RowPiece
from headwater.pipeline.find_bad_rows import is_about_rows
from headwater.pipeline.steps.project import project
from tests.parts.clickhouse import ClickHouseEngine
from tests.pipeline.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Picky(DuckDBDestination):
    """Refuses each load that contains one of some numbers, without naming the row; may fail at the nth."""

    refused: tuple[int, ...] = ()
    error: Exception = LoadRefused("this load cannot be stored.")
    unavailable_at = 0
    loads = 0

    def load(self, load: Load) -> Loaded:
        self.loads += 1
        if self.loads == self.unavailable_at:
            raise DestinationUnavailable("the server was restarted.")
        for path in load.files:
            if set(self.refused) & set(pq.read_table(path).column("n").to_pylist()):
                raise self.error
        return super().load(load)


@pytest.fixture
def picky(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Picky]:
    """The destination of all cycles of the rig."""
    made = Picky("dwh", DuckDBSettings(path=str(rig.database())))
    monkeypatch.setattr(cycle, "load_destination", lambda _: made)
    yield made
    made.close()


class LosesFiles(DuckDBDestination):
    """The disk of the staged files fails: they are gone, or cut."""

    damage = "none"

    def load(self, load: Load) -> Loaded:
        for path in map(Path, load.files):
            whole = path.read_bytes()
            if self.damage == "gone":
                path.unlink()
            elif self.damage == "cut":
                path.write_bytes(whole[: len(whole) // 2])
        return super().load(load)


def numbers(rig: Rig) -> list[int]:
    return [number for (number,) in rig.sql("SELECT n FROM events ORDER BY n")]


def test_the_bad_event_alone_is_a_reject_when_a_destination_refuses_a_file(rig: Rig, picky: Picky) -> None:
    picky.refused = (3,)
    path = rig.file([{"n": n} for n in range(8)])
    report = rig.cycle()
    assert numbers(rig) == [0, 1, 2, 4, 5, 6, 7]
    [reject] = rig.rejects()
    assert bytes(reject.event or b"") == b'{"n": 3}'
    assert reject.error == "this load cannot be stored."
    assert reject.source == f"{path.name}:3"
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.rejected) == (8, 7, 1)
    assert report.is_complete


def test_other_files_and_tables_are_loaded_when_one_of_many_files_has_a_bad_event(
    rig: Rig, picky: Picky
) -> None:
    picky.refused = (11,)
    for first in (0, 10, 20):
        rig.file([{"t": t, "n": first + i} for t in ("events", "other") for i in range(2)])
    report = rig.cycle(rig.settings({"table_name_template": "{{ t }}"}))
    assert report.is_complete
    good = [0, 1, 10, 20, 21]
    assert numbers(rig) == good
    assert [n for (n,) in rig.sql("SELECT n FROM other ORDER BY n")] == good
    assert [
        (done.events, done.rows, done.rejected) for file in report.files for done in file.destinations
    ] == [(4, 4, 0), (4, 2, 2), (4, 4, 0)]
    assert len(rig.rejects()) == 2


def test_nothing_is_doubled_when_an_outage_interrupts_the_search(rig: Rig, picky: Picky) -> None:
    picky.refused = (6,)
    picky.unavailable_at = 7  # the first half is stored, and of the second a part
    path = rig.file([{"n": n} for n in range(8)])
    assert not rig.cycle().is_complete
    stored = numbers(rig)
    assert 0 < len(stored) < 7
    assert rig.status(path).cuts("dwh", "events")
    picky.refused = ()  # the whole would be taken now, but parts of it are stored
    report = rig.cycle()
    assert report.is_complete
    assert numbers(rig) == list(range(8))
    [done] = report.files[0].destinations
    assert (done.events, done.rows, done.rejected) == (8, 8, 0)


def test_the_bad_event_alone_is_a_reject_when_an_expression_of_spark_fails(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(events: DataFrame, *arguments: Any, **options: Any) -> DataFrame:
        good = events.where("if(value LIKE '%boom%', raise_error('boom') IS NULL, true)")
        return project(good, *arguments, **options)

    monkeypatch.setattr(load_module, "project", failing)
    rig.file([{"n": 0}])
    rig.file([{"n": 1}, {"n": 2, "text": "boom"}, {"n": 3}])
    report = rig.cycle()
    assert report.is_complete
    assert numbers(rig) == [0, 1, 3]
    [reject] = rig.rejects()
    assert b"boom" in bytes(reject.event or b"")


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_the_file_waits_and_nothing_is_loaded_when_an_event_gives_no_row(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    def forgetful(events: DataFrame, *arguments: Any, **options: Any) -> DataFrame:
        return project(events, *arguments, **options).where("n != 3")

    monkeypatch.setattr(cycle, "SMALL_BYTES", small_bytes)
    rig.file([{"n": n} for n in range(8)])
    with monkeypatch.context() as patched:
        patched.setattr(load_module, "project", forgetful)
        report = rig.cycle()
    [error] = report.errors
    assert "8 events were counted, but 7 rows staged" in error
    assert not rig.rejects()
    assert rig.cycle().is_complete
    assert numbers(rig) == list(range(8))


@pytest.mark.parametrize(
    "error",
    [
        OSError("no space left on device"),
        TableRefused("it is a view."),
        RuntimeError("an executor was killed"),
    ],
    ids=["disk", "table", "unknown"],
)
def test_the_file_waits_and_nothing_is_rejected_when_no_event_is_at_fault(
    rig: Rig, picky: Picky, error: Exception
) -> None:
    picky.refused, picky.error = (3,), error
    path = rig.file([{"n": n} for n in range(8)])
    report = rig.cycle()
    assert not report.is_complete
    assert str(error) in rig.status(path).pairs["dwh", "events"].error
    assert rig.rejects() == []
    picky.refused = ()
    assert rig.cycle().is_complete
    assert numbers(rig) == list(range(8))


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_the_file_waits_and_nothing_is_rejected_when_its_staged_rows_cannot_be_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    made = LosesFiles("dwh", DuckDBSettings(path=str(rig.database())))
    monkeypatch.setattr(cycle, "load_destination", lambda _: made)
    made.damage = damage
    path = rig.file([{"n": n, "text": f"{n}"} for n in range(8)])
    report = rig.cycle()
    assert not report.is_complete
    assert "cannot be read" in rig.status(path).pairs["dwh", "events"].error
    assert not rig.status(path).cuts("dwh", "events")
    assert rig.rejects() == []
    made.damage = "none"
    assert rig.cycle().is_complete
    assert numbers(rig) == list(range(8))
    made.close()


class Interrupted(ClickHouseDestination):
    """Another program moves the first partition, and changes the table, when the ledger has the load."""

    is_interrupted = False

    def _enter(self, table: str, loaded: Loaded, state: int) -> None:
        super()._enter(table, loaded, state)
        if not self.is_interrupted:
            self.is_interrupted = True
            ready, target = (self.relation(name) for name in (load_tables(loaded.id).ready, table))
            self.execute(f"ALTER TABLE {ready} MOVE PARTITION ID '0' TO TABLE {target}")
            self.execute(f"ALTER TABLE {target} ADD COLUMN other Nullable(Int64)")


def test_no_row_is_doubled_when_clickhouse_refuses_the_rest_of_a_move(
    rig: Rig, clickhouse: ClickHouseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = clickhouse.database()
    options = {"url": clickhouse.url, "database": database}
    settings = rig.settings({"type": "clickhouse", "options": options, "adopt_tables": ["events"]})
    made = Interrupted("dwh", ClickHouseSettings(url=clickhouse.url, database=database))
    made.adopt_tables = ("events",)
    monkeypatch.setattr(cycle, "load_destination", lambda _: made)
    events = f"`{database}`.events"
    clickhouse.client.command(f"CREATE DATABASE `{database}`")
    clickhouse.client.command(
        f"CREATE TABLE {events} (n Int64) ENGINE = MergeTree PARTITION BY n % 3 ORDER BY n"
    )
    path = rig.file([{"n": n} for n in range(9)])
    assert not rig.cycle(settings).is_complete
    assert "is being moved into" in rig.status(path).pairs["dwh", "events"].error
    assert not rig.status(path).cuts("dwh", "events")
    assert rig.rejects() == []
    clickhouse.client.command(f"ALTER TABLE {events} DROP COLUMN other")
    assert rig.cycle(settings).is_complete
    found = clickhouse.query(f"SELECT n FROM {events} ORDER BY n")
    assert [row["n"] for row in found] == list(range(9))
    made.close()


def test_a_replayed_reject_is_a_reject_again_when_it_fails_again(rig: Rig, picky: Picky) -> None:
    picky.refused = (3, 5)
    rig.file([{"n": n} for n in range(8)])
    assert rig.cycle().is_complete
    assert len(rig.rejects()) == 2
    picky.refused = (5,)
    assert DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0) == 2
    assert rig.cycle().is_complete
    assert numbers(rig) == [0, 1, 2, 3, 4, 6, 7]
    [reject] = rig.rejects()
    assert bytes(reject.event or b"") == b'{"n": 5}'
    assert rig.waiting() == []


def test_only_errors_of_values_and_plans_are_about_rows_when_spark_fails(rig: Rig, tmp_path: Path) -> None:
    def error_of(frame: DataFrame) -> Exception:
        with pytest.raises(Exception) as caught:
            frame.collect()
        return caught.value

    one = rig.spark.range(1)
    assert is_about_rows(error_of(one.selectExpr("raise_error('bad value')")))
    assert is_about_rows(error_of(one.selectExpr("cast('x' || id AS int)")))
    # an executor that reads staged rows which are gone, or damaged
    folder = tmp_path / "rows"
    one.write.parquet(str(folder))
    frame = rig.spark.read.parquet(str(folder))
    for path in folder.glob("part-*"):
        path.write_bytes(b"PAR1")
    assert not is_about_rows(error_of(frame))
    with pytest.raises(Exception, match="PATH_NOT_FOUND") as caught:
        rig.spark.read.text(str(tmp_path / "missing"))
    assert not is_about_rows(caught.value)


def test_halves_contain_each_row_once_when_the_splits_of_a_file_are_far_apart() -> None:
    spans = [(5, 9), (1 << 33, (1 << 33) + 1), ((2 << 33) + 7, (2 << 33) + 10)]
    found: list[int] = []

    def cut(piece: RowPiece) -> None:
        if piece.end - piece.first == 1:
            found.append(piece.first)
            return
        left, right = piece.halves()
        assert (left.first, right.end) == (piece.first, piece.end)
        assert left.end <= right.first
        cut(left)
        cut(right)

    cut(RowPiece.of(spans))
    assert found == [row for first, end in spans for row in range(first, end)]
