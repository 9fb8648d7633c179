"""Lineage in a running Spark: installed, flushed, uninstalled; several sessions, threads and streams."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater.lineage
from headwater.lineage.process.install import LineageUnavailable
from headwater.testing.lineage import CollectingTransport, Events, collect_lineage
from tests.lineage.conftest import validate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def root_run(event: dict[str, Any]) -> Any:
    return event["run"]["facets"]["parent"]["root"]["run"]["runId"]


def test_a_write_has_one_start_and_one_end_when_it_succeeds(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    spark.range(10).write.parquet(str(tmp_path / "out"))
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert [event["outputs"][0]["name"] for event in events] == [str(tmp_path / "out")] * 2
    assert len({event["job"]["name"] for event in events}) == 1


def test_a_saved_table_is_one_run_when_spark_needs_three_executions(
    spark: SparkSession, events: Events
) -> None:
    spark.range(10).write.saveAsTable("attach_saved")
    found = events.all
    spark.sql("DROP TABLE attach_saved")
    assert [event["eventType"] for event in found] == ["START", "COMPLETE"]
    assert found[1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10


def test_reads_have_events_when_they_have_inputs(spark: SparkSession, events: Events, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "in"))
    before = len(events)
    spark.read.parquet(str(tmp_path / "in")).collect()
    spark.range(5).collect()
    spark.sql("SHOW TABLES").collect()
    found = events.all[before:]
    assert {event["eventType"] for event in found} == {"START", "COMPLETE"}
    assert all(event["inputs"][0]["name"] == str(tmp_path / "in") for event in found)


def test_no_read_has_events_when_the_setting_says_none(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.mode("overwrite").parquet(str(tmp_path / "in"))
    with collect_lineage(spark, reads="none") as events:
        spark.read.parquet(str(tmp_path / "in")).collect()
        with pytest.raises(Exception, match="nope"):
            spark.read.parquet(str(tmp_path / "in")).selectExpr("nope").collect()
    assert [event["eventType"] for event in events.select(job_type="SQL_JOB")] == ["START", "FAIL"]


def test_nodes_are_left_out_when_the_setting_denies_them(spark: SparkSession, tmp_path: Path) -> None:
    with collect_lineage(spark, denied_nodes=("InsertIntoHadoopFsRelationCommand",)) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    assert events.select(output="out") == []


def test_jobs_are_named_by_their_description_when_the_setting_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(4).write.parquet(str(tmp_path / "in"))
    context = spark.sparkContext
    with collect_lineage(spark, job_name_from_description=True) as events:
        context.setJobDescription("load orders into the shop")
        try:
            spark.read.parquet(str(tmp_path / "in")).write.parquet(str(tmp_path / "out"))
            context.parallelize([1, 2]).saveAsTextFile(str(tmp_path / "text"))
        finally:
            context.setJobDescription(None)  # type: ignore[arg-type]  # None takes it away
        spark.read.parquet(str(tmp_path / "in")).write.parquet(str(tmp_path / "other"))
    names = {
        output["name"]: {event["job"]["name"] for event in events if event["run"]["runId"] == run}
        for run, output in ((event["run"]["runId"], each) for event in events for each in event["outputs"])
    }
    assert names[str(tmp_path / "out")] == {"lineage_tests.load_orders_into_the_shop"}
    assert names[str(tmp_path / "text")] == {"lineage_tests.load_orders_into_the_shop"}
    (other,) = names[str(tmp_path / "other")]
    assert other.startswith("lineage_tests.execute_insert_into_hadoop_fs_relation_command")


def test_every_run_has_the_application_as_its_root(spark: SparkSession, tmp_path: Path) -> None:
    with collect_lineage(spark) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
        spark.sparkContext.textFile(str(tmp_path / "out")).count()
    application = events.select("START", job_type="APPLICATION")[0]["run"]["runId"]
    others = [event for event in events if event["run"]["runId"] != application]
    assert len(others) == 4
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in others} == {application}
    assert events.only("COMPLETE", job_type="APPLICATION")["run"]["runId"] == application
    validate(events.all)


def test_the_orchestrator_is_parent_and_root_when_the_settings_name_it(spark: SparkSession) -> None:
    run = "01a1e2dd-20f3-783b-93f8-82d491afb988"
    own = "01a1e2dd-20f3-783b-93f8-82d491afb989"
    with (
        collect_lineage(
            spark,
            parent_run_id=run,
            parent_job_name="dag.task",
            parent_job_namespace="air",
            application_run_id=own,
        ) as events,
        pytest.raises(Exception, match="nope"),
    ):
        spark.sql("SELECT nope").collect()
    start = events.select("START", job_type="APPLICATION")[0]
    assert start["run"]["runId"] == own
    assert start["run"]["facets"]["parent"]["run"]["runId"] == run
    failed = events.only("FAIL")
    assert failed["run"]["facets"]["parent"]["run"]["runId"] == own
    assert root_run(failed) == run


def test_other_sessions_and_threads_have_events_when_they_run_queries(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    def work(number: int) -> None:
        spark.newSession().range(number + 1).write.parquet(str(tmp_path / f"out{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = events.select("COMPLETE")
    assert sorted(end["outputs"][0]["name"] for end in ends) == [str(tmp_path / f"out{n}") for n in range(6)]


def test_nothing_is_left_behind_when_it_is_uninstalled(spark: SparkSession) -> None:
    headwater.lineage.uninstall()
    context = type(spark.sparkContext)
    before = (sys.excepthook, sys.exit, list(sys.meta_path), context._do_init, context.stop)
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("headwater-lineage")}
    headwater.lineage.install(spark, transport=CollectingTransport())
    headwater.lineage.install(spark, transport=CollectingTransport())
    assert context._do_init is not before[3]
    headwater.lineage.uninstall()
    headwater.lineage.uninstall()
    after = (sys.excepthook, sys.exit, list(sys.meta_path), context._do_init, context.stop)
    assert after == before
    assert "stop" not in vars(spark.sparkContext)
    left = {thread.name for thread in threading.enumerate() if thread.name.startswith("headwater-lineage")}
    assert left <= threads
    assert headwater.lineage.flush(), "there is nothing to wait for"


def test_nothing_is_sent_when_it_is_disabled(spark: SparkSession, tmp_path: Path) -> None:
    with collect_lineage(spark, disabled=True) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    assert events.all == []


def test_micro_batches_are_runs_of_their_stream_when_it_ends(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    spark.range(10).write.parquet(str(tmp_path / "in"))
    before = len(events)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(str(tmp_path / "out"))

    query = (
        spark.readStream.schema("id long")
        .parquet(str(tmp_path / "in"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = events.all[before:]
    runs = events.runs()
    assert [event["eventType"] for event in found].count("COMPLETE") == 2
    batch = next(event for event in found if event["eventType"] == "COMPLETE")
    stream = found[0]
    assert batch["run"]["facets"]["parent"]["run"]["runId"] == stream["run"]["runId"]
    assert [each["name"] for each in batch["outputs"]] == [str(tmp_path / "out")]
    assert [each["name"] for each in batch["inputs"]] == [str(tmp_path / "in")]
    assert runs[stream["run"]["runId"]] == ["START", "COMPLETE"]


def test_a_running_query_is_aborted_when_lineage_ends_under_it(spark: SparkSession) -> None:
    with collect_lineage(spark) as events:
        query = spark.readStream.format("rate").load().writeStream.format("noop").start()
        while not events.select("START", job_type="STREAMING_JOB") and len(events) < 2:
            query.processAllAvailable()
    query.stop()
    states = {tuple(each) for each in events.runs().values()}
    assert ("START", "ABORT") in states
    events.assert_paired()


def test_there_is_a_warning_and_no_error_when_the_jvm_is_not_reachable(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Gateway:
        """A context whose JVM is of no use."""

        version = "9.9"
        _jvm = None

        def getConf(self) -> Any:  # noqa: N802
            return spark.sparkContext.getConf()

    with pytest.warns(LineageUnavailable, match="No lineage"):
        headwater.lineage.process.install.attach_or_warn(Gateway())  # type: ignore[arg-type]


def test_a_connect_client_gets_a_warning_when_it_installs_lineage() -> None:
    class Session:
        """What a Spark Connect session looks like: no SparkContext."""

    headwater.lineage.uninstall()
    with pytest.warns(LineageUnavailable, match="Spark Connect"):
        headwater.lineage.install(Session())  # type: ignore[arg-type]
    headwater.lineage.uninstall()
