"""A user's own streaming query writes through `foreachBatch(into(…))`, and a user's session runs a cycle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable

from headwater.errors import SettingsError
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline import foreach_batch, into, load, run
from headwater.pipeline.foreach_batch import MicroBatchLoader
from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.settings import Settings
from tests.pipeline.rig import Rig
from tests.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Died(Exception):
    """The process dies here."""


class Query:
    """A query over files of JSON lines: each file is a micro-batch."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self._rig, self.settings = rig, settings
        self._source = rig.folder / "source"
        self._source.mkdir()
        self._files = 0
        self.loaders: list[MicroBatchLoader] = []

    def add(self, *events: Any) -> None:
        partial = self._rig.folder / "partial"
        partial.write_text(
            "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in events)
        )
        # the source takes files in the order of their times
        os.utime(partial, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        partial.rename(self._source / f"{self._files:04}.json")
        self._files += 1

    def run(self, frame: Callable[[DataFrame], DataFrame] = lambda rows: rows, **options: Any) -> None:
        """Runs until all files are loaded, as a new process would."""
        loader = into("dwh", self.settings, **({"column": "value"} | options))
        assert isinstance(loader, MicroBatchLoader)
        self.loaders.append(loader)
        rows = self._rig.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._source))
        writer = frame(rows).writeStream.foreachBatch(loader).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._rig.folder / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            loader.close()

    def repeat_last(self) -> None:
        """Spark runs the last batch again: it had died before it noted its end."""
        commits = self._rig.folder / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def query(rig: Rig) -> Iterator[Query]:
    made = Query(rig, rig.settings({"table_name_template": "{{ kind }}"}))
    yield made
    for each in made.loaders:
        each.close()


def test_rows_are_stored_once_when_spark_repeats_a_batch(rig: Rig, query: Query) -> None:
    query.add({"kind": "a", "n": 1}, {"kind": "b", "n": 2})
    query.add({"kind": "a", "n": 3, "late": "x"}, "not an event")
    query.run()
    query.repeat_last()
    query.run()
    query.add({"kind": "a", "n": 4})
    query.run()
    assert rig.rows("a") == [
        {"kind": "a", "n": 1},
        {"kind": "a", "n": 3, "late": "x"},
        {"kind": "a", "n": 4},
    ]
    assert rig.rows("b") == [{"kind": "b", "n": 2}]
    loads = rig.sql("SELECT count(*) FROM _headwater_loads")
    assert loads == [(4,)]
    rejects = {each.line() for each in DestinationRejects(query.settings.events_dir).read("dwh")}
    assert rejects == {b"not an event"}


def test_a_row_is_an_event_when_no_column_is_named(rig: Rig, query: Query) -> None:
    query.add({"kind": "a"})
    sql = [
        "'a' AS kind",
        "9007199254740993 AS n",
        "TIMESTAMP '2026-11-16 10:00:00.123456 UTC' AS at",
        "named_struct('x', 1.5D, 'y', cast(NULL AS int)) AS inner",
    ]
    query.run(lambda rows: rows.selectExpr(*sql), column=None)
    [row] = rig.rows("a")
    assert (row["n"], row["inner_x"], row["at"].isoformat()) == (
        9007199254740993,
        1.5,
        "2026-11-16T10:00:00.123456",
    )
    assert "inner_y" not in row


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("pipeline.before_load", marks=pytest.mark.long),
        "pipeline.after_load",
        pytest.param("foreach_batch.loaded", marks=pytest.mark.long),
    ],
)
def test_rows_are_stored_once_when_a_batch_breaks(
    rig: Rig, query: Query, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from pyspark.errors import StreamingQueryException

    query.add({"kind": "a", "n": 1}, {"kind": "b", "n": 2}, {"kind": "b", "n": 3})

    def crash_point(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(foreach_batch, "crash_point", crash_point)
        patched.setattr(load, "crash_point", crash_point)
        with pytest.raises(StreamingQueryException):
            query.run()
    query.run()
    assert [row["n"] for row in rig.rows("a")] == [1]
    assert [row["n"] for row in rig.rows("b")] == [2, 3]


@pytest.mark.long
@pytest.mark.parametrize("deaths", [0, 1, 3])
def test_bad_rows_alone_are_rejects_when_the_search_is_interrupted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    from pyspark.errors import StreamingQueryException

    with duckdb.connect(str(rig.database())) as connection:
        connection.execute("CREATE TABLE strict (n BIGINT CHECK (n % 7 <> 3))")
    settings = rig.settings({"table_name_template": "strict", "adopt_tables": ["strict"]})
    query = Query(rig, settings)
    query.add(*({"n": n} for n in range(20)))
    # the destination does not set rows aside: the batch is refused as a whole, and searched by halves
    monkeypatch.setattr("headwater.destinations.base.Destination.max_refused", 0)
    left, loads = deaths, 0

    def crash_point(name: str) -> None:
        nonlocal left, loads
        loads += name == "pipeline.after_load"
        if left and loads >= 2:
            left, loads = left - 1, 0
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(foreach_batch, "crash_point", crash_point)
        patched.setattr(load, "crash_point", crash_point)
        for _ in range(deaths):
            with pytest.raises(StreamingQueryException):
                query.run()
        query.run()
    assert sorted(row["n"] for row in rig.rows("strict")) == [n for n in range(20) if n % 7 != 3]
    rejects = {json.loads(each.line())["n"] for each in DestinationRejects(settings.events_dir).read("dwh")}
    assert rejects == {3, 10, 17}
    query.repeat_last()
    query.run()
    assert len(rig.rows("strict")) == 17


def test_nothing_of_a_users_session_changes_when_it_runs_a_cycle(rig: Rig, spark: SparkSession) -> None:
    from pyspark.sql import SparkSession as Session

    users = spark.newSession()
    users.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    users.conf.set("spark.sql.caseSensitive", "false")
    users.conf.set("spark.sql.ansi.enabled", "false")
    before, active = users.conf.getAll, Session.getActiveSession()
    functions = {each.name for each in users.catalog.listFunctions()}
    rig.file([{"kind": "a", "at": "2026-11-16T10:00:00Z", "Kind": "b"}])
    report = run(users, rig.settings({"table_name_template": "t"}))
    assert report.is_complete
    [row] = rig.rows("t")
    assert (row["kind"], row["at"].isoformat()) == ("a", "2026-11-16T10:00:00")
    assert users.conf.getAll == before
    assert {each.name for each in users.catalog.listFunctions()} == functions
    now = Session.getActiveSession()
    assert active is not None
    assert now is not None
    assert now._jsparkSession.equals(active._jsparkSession)


def test_what_to_do_is_said_when_the_door_is_used_wrongly(rig: Rig) -> None:
    with pytest.raises(SettingsError, match="known: dwh"):
        into("other", rig.settings())
    with pytest.raises(SparkUnavailable, match="runs no streaming query"):
        into("dwh", rig.settings())(rig.spark.range(1), 0)
    with pytest.raises(SparkUnavailable, match="Spark Connect"):
        into("dwh", rig.settings())(object(), 0)  # type: ignore[arg-type]
    with pytest.raises(SparkUnavailable, match="Spark Connect"):
        run(object(), rig.settings())  # type: ignore[arg-type]


SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import headwater.pipeline

folder = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "source"))
into = headwater.pipeline.into("lake", folder / "headwater.yml", column="value")
query = rows.writeStream.foreachBatch(into).trigger(availableNow=True)
query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
"""
SETTINGS = """
data_dir: {folder}
destinations:
  - id: lake
    type: delta
    path: {folder}/lake
    table_name_template: "{{{{ kind }}}}"
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_row_is_stored_once_when_the_process_is_killed(tmp_path: Path, full: bool) -> None:
    points = ["pipeline.before_load", "load.before_commit", "pipeline.after_load", "foreach_batch.loaded"]
    kills = 10 if full else 2
    (tmp_path / "headwater.yml").write_text(SETTINGS.format(folder=tmp_path))
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2 * kills + 2):
        events = [{"kind": "ab"[n % 2], "n": 100 * number + n} for n in range(100)]
        (source / f"{number:03}.json").write_text("".join(f"{json.dumps(each)}\n" for each in events))
        os.utime(source / f"{number:03}.json", (1_700_000_000 + number, 1_700_000_000 + number))
    ends = []
    for kill in range(kills + 1):
        point = f"{points[kill % len(points)]}:{2 + kill % 3}" if kill < kills else ""
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"HEADWATER_CRASH_POINT": point},
            capture_output=True,
            text=True,
            timeout=200,
        )
        ends.append(done.returncode)
    assert ends == [-signal.SIGKILL] * kills + [0], done.stderr[-3000:]
    stored = [
        value
        for name in "ab"
        for value in DeltaTable(str(tmp_path / "lake" / name)).to_pyarrow_table().column("n").to_pylist()
    ]
    assert sorted(stored) == [100 * number + n for number in range(2 * kills + 2) for n in range(100)]
