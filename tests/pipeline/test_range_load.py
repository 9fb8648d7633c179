"""A range that a destination refuses: the table is read again, then the refused rows are searched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from headwater.clock import SystemClock
from headwater.destinations.base import Load, Loaded
from headwater.destinations.duckdb import DuckDBDestination, DuckDBSettings
from headwater.destinations.locks import FileLocks
from headwater.errors import LoadRefused, TableRefused
from headwater.log.streams import Planned
from headwater.pipeline import find_bad_rows
from headwater.pipeline.find_bad_rows import BadRowSearch, is_about_rows
from headwater.pipeline.load import Loader
from headwater.pipeline.load_report import Outcome
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.fit_table import TablePatcher
from headwater.pipeline.steps.route import Router
from headwater.pipeline.steps.stage import DriverStager
from headwater.pipeline.steps.template import Template
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange
from headwater.pipeline.stream.range_load import RangeLoad
from headwater.settings import Settings
from tests.pipeline.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Picky(DuckDBDestination):
    """Refuses a load that has one of these numbers in it, and says nothing about the row."""

    refused: tuple[int, ...] = ()
    loads = 0

    def load(self, load: Load) -> Loaded:
        self.loads += 1
        for path in load.files:
            if set(self.refused) & set(pq.read_table(path).column("n").to_pylist()):
                raise LoadRefused("there is something that it does not like.")
        return super().load(load)


class Ranges:
    """Loads of ranges into such a destination."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.settings: Settings = rig.settings({"mode": "stream"})
        [own] = self.settings.destinations
        self.destination = Picky("dwh", DuckDBSettings(path=str(rig.database())))
        self.destination.connect()
        self.staging = Staging(self.settings.staging_dir)
        self.loader = Loader(
            own,
            self.destination,
            lookups=Lookups((), self.settings.pipeline),
            tables=TablePatcher(own, self.destination, FileLocks(rig.folder / "locks")),
            stager=DriverStager(),
            staging=self.staging,
            rejects=RejectWriter(self.settings.events_dir, "dwh", SystemClock()),
        )
        self.saved: list[int] = []

    def run(self, count: int, plan: Planned, lines: DataFrame | None = None) -> Outcome:
        load = RangeLoad(
            self.loader,
            Router(Template("events"), max_identifier_length=63),
            positions=PositionRange("q", "dwh", 1, count + 1),
            plan=plan,
            loaded=LoadedRanges(),
            save_plan=lambda: self.saved.append(len(plan.split)),
            retry=lambda function: function(),
        )
        return load.run(lines or self.lines(count))

    def lines(self, count: int) -> DataFrame:
        rows: list[tuple[str, Any]] = [(f'{{"n": {number}}}', number) for number in range(1, count + 1)]
        return self.rig.spark.createDataFrame(rows, "value string, _headwater_row bigint").coalesce(1)

    def close(self) -> None:
        self.staging.close()
        self.destination.close()


@pytest.fixture
def ranges(spark: SparkSession, tmp_path: Path) -> Iterator[Ranges]:
    with Rig(spark, tmp_path) as rig:
        made = Ranges(rig)
        yield made
        made.close()


def test_the_bad_rows_alone_are_rejected_and_nothing_is_doubled_when_a_load_is_refused(
    ranges: Ranges,
) -> None:
    ranges.destination.refused = (3,)
    plan = Planned(9)
    result = ranges.run(8, plan)
    assert (result.rows, result.rejected) == (7, 1)
    # each cut was written down before the next load
    assert ranges.saved == list(range(1, len(plan.split) + 1))
    assert plan.split[:2] == [("events", 1, 9), ("events", 1, 5)]
    rows = [{"n": number} for number in (1, 2, 4, 5, 6, 7, 8)]
    assert sorted(ranges.rig.rows(), key=lambda row: int(row["n"])) == rows
    [reject] = ranges.rig.rejects()
    assert bytes(reject.event) == b'{"n": 3}'
    assert "does not like" in reject.error
    # After a crash the whole would be taken now; but pieces of it are stored, so it is cut as before.
    ranges.destination.refused = ()
    again = ranges.run(8, plan)
    assert (again.rows, again.rejected) == (8, 0)
    assert len(ranges.rig.rows()) == 8


def test_what_is_left_is_rejected_whole_when_the_table_itself_is_refused(ranges: Ranges) -> None:
    ranges.destination.execute("CREATE VIEW events AS SELECT 1 AS n")
    result = ranges.run(4, Planned(5))
    assert (result.rows, result.rejected) == (0, 4)
    assert len(ranges.rig.rejects()) == 4


def test_nothing_is_rejected_or_cut_when_a_process_of_spark_dies(ranges: Ranges) -> None:
    def die(parts: Iterator[Any]) -> Iterator[Any]:
        yield from ()
        os._exit(1)

    plan = Planned(5)
    lines = ranges.lines(4)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        ranges.run(4, plan, lines.mapInArrow(die, lines.schema))
    assert (plan.split, ranges.rig.rejects()) == ([], [])
    assert ranges.run(4, plan).rows == 4


class Rows:
    """Refuses pieces that contain one of these positions."""

    def __init__(self, *refused: int, error: Exception | None = None) -> None:
        self.refused = refused
        self.error = error or LoadRefused("refused")
        self.loaded: list[int] = []
        self.cuts: list[PositionRange] = []

    def load(self, piece: PositionRange) -> None:
        if any(piece.first <= row < piece.end for row in self.refused):
            raise self.error
        self.loaded.extend(range(piece.first, piece.end))

    def search(self, first: int, end: int) -> list[tuple[int, int]]:
        search = BadRowSearch(self.load, is_cut=self.cuts.__contains__, save_cut=self.cuts.append)
        found = search.run(PositionRange("q", "dwh", first, end))
        return [(piece.first, piece.end) for piece, _ in found]


def test_the_refused_rows_are_alone_when_some_of_many_are_refused() -> None:
    rows = Rows(3, 17, 18)
    assert rows.search(1, 33) == [(3, 4), (17, 18), (18, 19)]
    assert sorted(rows.loaded) == [row for row in range(1, 33) if row not in (3, 17, 18)]


def test_pieces_stay_as_they_were_cut_when_the_search_is_repeated() -> None:
    rows = Rows(3)
    assert rows.search(1, 9) == [(3, 4)]
    cuts = list(rows.cuts)
    rows.refused, rows.loaded = (), []
    assert rows.search(1, 9) == []
    assert rows.cuts == cuts
    assert sorted(rows.loaded) == list(range(1, 9))


def test_nothing_is_cut_when_the_table_itself_is_refused() -> None:
    rows = Rows(3, error=TableRefused("a view"))
    assert rows.search(1, 9) == [(1, 9)]
    assert rows.cuts == []


def test_the_search_ends_when_it_needs_too_many_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_bad_rows, "MAX_PIECES", 4)
    rows = Rows(*range(1, 65))
    found = rows.search(1, 65)
    assert sum(end - first for first, end in found) == 64
    assert len(found) < 10


def test_the_error_is_raised_when_it_is_not_about_rows() -> None:
    rows = Rows(3, error=OSError("no space left on device"))
    with pytest.raises(OSError, match="no space"):
        rows.search(1, 9)
    assert rows.cuts == []


def test_errors_of_expressions_are_about_rows_when_spark_raises_them() -> None:
    from pyspark.errors import ArithmeticException, PythonException

    assert is_about_rows(ArithmeticException("[ARITHMETIC_OVERFLOW] long overflow"))
    assert not is_about_rows(PythonException("a worker could not write"))
