"""Failures of the job and of lineage: the job is unchanged, and the event has the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.testing.lineage import Events, collect_lineage
from tests.lineage.conftest import validate
from tests.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)
PATIENCE_SECONDS = 400  # only a very busy machine needs it


def message(event: dict[str, Any]) -> str:
    return str(event["run"]["facets"]["errorMessage"]["message"])


def extraction_errors(event: dict[str, Any]) -> str:
    return str(event["run"]["facets"].get("extractionError"))


def test_the_event_says_fail_when_a_query_cannot_be_analyzed(spark: SparkSession, events: Events) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="nope"):
        spark.sql("SELECT nope FROM range(3)").collect()
    assert "nope" in message(events.only("FAIL"))


def test_the_event_says_fail_when_a_task_fails(spark: SparkSession, events: Events, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="broken row"):
        spark.range(10).selectExpr("raise_error('broken row')").write.parquet(str(tmp_path / "out"))
    event = events.only("FAIL")
    assert "broken row" in message(event)
    assert event["outputs"][0]["name"] == str(tmp_path / "out")


def test_the_event_says_fail_when_an_rdd_job_fails(spark: SparkSession, events: Events) -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        spark.sparkContext.parallelize([1]).map(lambda value: value / 0).collect()
    assert "ZeroDivisionError" in message(events.only("FAIL"))


def test_the_event_says_fail_when_the_driver_cannot_commit(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    # every task succeeds; the driver then finds a folder where it wants to write its mark of success
    (tmp_path / "out" / "_SUCCESS").mkdir(parents=True)
    with pytest.raises(Exception, match="_SUCCESS"):
        spark.range(10).write.mode("append").parquet(str(tmp_path / "out"))
    assert "_SUCCESS" in message(events.only("FAIL"))


def test_the_event_says_fail_when_the_job_is_cancelled(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    def cancel() -> None:
        tracker = spark.sparkContext.statusTracker()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not tracker.getActiveStageIds():
            time.sleep(0.05)
        spark.sparkContext.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    slow = spark.range(4).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L) AS slept")
    with pytest.raises(Exception, match=r"[Cc]ancel"):
        slow.write.parquet(str(tmp_path / "out"))
    canceller.join()
    assert "cancel" in message(events.only("FAIL", output="out")).lower()


def test_the_stream_ends_once_when_it_is_killed(spark: SparkSession, events: Events, tmp_path: Path) -> None:
    begun = threading.Event()

    def hang(batch: DataFrame, number: int) -> None:
        begun.set()
        batch.limit(1).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)").collect()

    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 100)
        .load()
        .writeStream.foreachBatch(hang)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert begun.wait(PATIENCE_SECONDS)
    query.stop()
    ends = [event["eventType"] for event in events if event["eventType"] != "START"]
    assert sorted(ends) == ["COMPLETE", "FAIL"], "the batch failed, the stream was asked to end"


def test_the_stream_and_its_batch_fail_when_a_batch_raises(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    def fail(batch: object, number: int) -> None:
        raise ValueError("bad batch")

    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 100)
        .load()
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(Exception, match="bad batch"):
        query.awaitTermination(PATIENCE_SECONDS)
    assert ["bad batch" in message(event) for event in events.select("FAIL")] == [True, True]


def test_the_event_has_the_error_when_a_builder_raises(spark: SparkSession, tmp_path: Path) -> None:
    with collect_lineage(spark, extensions=("tests.lineage.faulty.Raising",)) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    event = events.only("COMPLETE", output="out")
    assert "a builder's mistake" in extraction_errors(event)
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10, "the rest is there"
    validate(events.all)


def test_the_event_names_the_builder_when_it_never_returns(spark: SparkSession, tmp_path: Path) -> None:
    with collect_lineage(
        spark, extensions=("tests.lineage.faulty.Sleeping",), deadline_millis=8000
    ) as events:
        for number in range(5):
            spark.range(10).write.parquet(str(tmp_path / f"out{number}"))
    ends = [event for event in events.select("COMPLETE") if event["outputs"]]
    assert len(ends) == 5
    assert all(
        "Sleeping" in extraction_errors(event) or "_Sleeps" in extraction_errors(event) for event in ends
    )
    validate(events.all)


def test_the_event_has_the_reason_when_the_driver_is_short_of_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collect_lineage(spark, memory_threshold=101) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    event = events.only("COMPLETE", job_type="SQL_JOB")
    assert event["outputs"] == []
    assert "heap" in extraction_errors(event)
    validate(events.all)


@pytest.mark.parametrize(("gc_percent", "is_read"), [(0, False), (101, True)])
def test_a_plan_is_read_though_memory_is_short_when_the_collector_is_not_busy(
    gc_percent: int, is_read: bool, spark: SparkSession, tmp_path: Path
) -> None:
    given = {"circuit_breaker": "javaRuntime", "gc_cpu_threshold": gc_percent}
    with collect_lineage(spark, memory_threshold=101, **given) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    assert bool(events.only("COMPLETE", job_type="SQL_JOB")["outputs"]) == is_read


def test_the_event_says_what_was_left_out_when_a_list_of_the_plan_is_cut(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    options = {f"option{number}": "x" for number in range(1001)}
    spark.range(1).write.options(**options).parquet(str(tmp_path / "out"))
    event = events.only("COMPLETE", output="out")
    assert "of its settings the first 1000 are read" in extraction_errors(event)


def test_the_event_stays_small_when_the_plan_holds_all_the_data(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    # Arrow data below the threshold becomes a LocalRelation with its rows; other data is an RDD.
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "64m")
    frame = pandas.DataFrame({"text": ["x" * 1024] * (16 * 1024)})
    spark.createDataFrame(frame).write.parquet(str(tmp_path / "out"))
    event = events.only("COMPLETE", output="out")
    assert len(str(event)) < 100_000
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 16 * 1024


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_event_stays_small_when_the_plan_holds_a_gigabyte(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: a heap of ten gigabytes")
    mebibytes = 1000
    command = [sys.executable, "-m", "tests.lineage.large_job", str(tmp_path), str(mebibytes)]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OPENLINEAGE_CONFIG": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stderr[-4000:]
    sent = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    validate(sent)
    (event,) = [each for each in sent if each["eventType"] == "COMPLETE" and each["outputs"]]
    assert len(str(event)) < 100_000
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == mebibytes * 1024


def test_columns_or_their_omission_are_reported_when_there_are_two_thousand(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    columns = [f"id + {number} AS c{number}" for number in range(2000)]
    spark.range(3).selectExpr(*columns).write.parquet(str(tmp_path / "wide"))
    spark.read.parquet(str(tmp_path / "wide")).selectExpr("*", "c1 + c2 AS total").write.parquet(
        str(tmp_path / "wider")
    )
    event = events.only("COMPLETE", output="wider")
    facets = event["outputs"][0]["facets"]
    assert len(facets["schema"]["fields"]) == 2001
    assert "columnLineage" in facets or "columnLineage" in extraction_errors(event)


def count_in_threads(spark: SparkSession, events: Events, folder: Path, threads: int) -> None:
    """Run one query in each of so many threads at once; each has one START and one COMPLETE."""
    spark.range(100).write.parquet(str(folder / "in"))
    table = spark.read.parquet(str(folder / "in"))  # once: it is a job, and the threads come one by one
    before = len(events)

    connecting = threading.Lock()
    all_here = threading.Barrier(threads, timeout=1000)

    def work(number: int) -> int:
        with connecting:  # py4j's server takes fifty new connections at once and resets the others
            frame = table.where(f"id > {number % 100}")
        all_here.wait()
        return frame.count()

    with ThreadPoolExecutor(threads) as pool:
        counts = list(pool.map(work, range(threads)))
    assert counts == [99 - number % 100 for number in range(threads)]
    found = events.all[before:]
    assert [event["eventType"] for event in found].count("START") == threads
    assert [event["eventType"] for event in found].count("COMPLETE") == threads


def test_every_query_has_its_events_when_60_threads_run_them(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    count_in_threads(spark, events, tmp_path, 60)  # more than the 50 connections that py4j accepts at once


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_every_query_has_its_events_when_300_threads_run_them(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    count_in_threads(spark, events, tmp_path, 300)
