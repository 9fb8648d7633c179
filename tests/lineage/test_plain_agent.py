"""Without the compiled agent: coarser, slower, and still whole runs with their datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.jvm import compile as jvm
from headwater.lineage.jvm.plain_agent import PlainAgent
from headwater.lineage.jvm.plain_plan import masked
from headwater.testing.lineage import Events, collect_lineage
from tests.lineage.conftest import validate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def names(event: dict[str, Any], side: str) -> list[str]:
    return sorted(dataset["name"] for dataset in event[side])


def errors(event: dict[str, Any]) -> str:
    return str(event["run"]["facets"].get("extractionError"))


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Events, Path]:
    """One application without the agent: writes, a table, a view, a failure, a stream."""
    folder = tmp_path_factory.mktemp("plain")

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(str(folder / "streamed"))

    with collect_lineage(spark, compile_agent=False) as events:
        spark.range(10).selectExpr("id", "id % 3 AS k").write.parquet(str(folder / "out"))
        spark.range(3).write.json(str(folder / "keys"))
        left, right = (
            spark.read.parquet(str(folder / "out")),
            spark.read.schema("id long").json(str(folder / "keys")),
        )
        left.join(right, "id").write.saveAsTable("plain_saved")
        left.createOrReplaceTempView("plain_view")
        spark.sql(
            "INSERT INTO plain_saved SELECT id, k FROM plain_view WHERE k IN (SELECT id FROM plain_saved)"
        )
        with pytest.raises(Exception, match="broken"):
            spark.sql("SELECT raise_error('broken') FROM plain_saved").collect()
        stream = spark.readStream.schema("id long, k long").parquet(str(folder / "out")).writeStream
        query = stream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        spark.sql("DROP TABLE plain_saved")
    return events, folder


def test_every_event_is_valid_and_paired_when_the_agent_is_not_compiled(told: tuple[Events, Path]) -> None:
    events, _ = told
    validate(events.all)
    events.assert_paired()


def test_datasets_are_told_when_the_agent_is_not_compiled(told: tuple[Events, Path]) -> None:
    events, folder = told
    written = events.only("COMPLETE", output=str(folder / "out"))
    assert [field["name"] for field in written["outputs"][0]["facets"]["schema"]["fields"]] == ["id", "k"]
    assert written["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
    saved, inserted = events.select("COMPLETE", output="plain_saved")[:2]
    assert names(saved, "inputs") == sorted([str(folder / "keys"), str(folder / "out")])
    assert saved["outputs"][0]["facets"]["symlinks"]["identifiers"][0]["name"] == "default.plain_saved"
    assert str(folder / "out") in names(inserted, "inputs"), "through the view"
    assert any(name.endswith("plain_saved") for name in names(inserted, "inputs")), "in the subquery"
    batch = events.only("COMPLETE", output=str(folder / "streamed"), job_type="MICRO_BATCH")
    assert names(batch, "inputs") == [str(folder / "out")]
    dropped = events.select("COMPLETE", output="plain_saved")[-1]
    assert dropped["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"


def test_a_failure_is_told_when_the_agent_is_not_compiled(told: tuple[Events, Path]) -> None:
    events, _ = told
    assert "broken" in events.only("FAIL")["run"]["facets"]["errorMessage"]["message"]


def test_the_event_says_what_is_missing_when_the_agent_is_not_compiled(told: tuple[Events, Path]) -> None:
    events, folder = told
    written = events.only("COMPLETE", output=str(folder / "streamed"), job_type="MICRO_BATCH")
    assert "columnLineage" not in written["outputs"][0]["facets"]
    assert "compiled agent" in errors(written)


def test_a_micro_batch_is_known_when_it_has_ended_before_it_is_looked_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "in"))
    agent = PlainAgent(spark.sparkContext)
    agent.attach()
    try:
        stream = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).writeStream
        stream = stream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
        query = stream.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        assert agent.settle(60_000)
        told = json.loads(agent.poll())
    finally:
        agent.detach(1000)
    batches = [each for each in told if each["type"] == "sql_start" and each.get("batch") == 0]
    assert {each["stream_run"] for each in batches} == {str(query.runId)}
    assert len(told) == agent.offered()


def test_lineage_goes_on_without_columns_when_the_agent_does_not_compile(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sources = jvm._sources() | {"Agent": "public class Agent extends NothingThatSparkHas {}"}
    monkeypatch.setattr(jvm, "_sources", lambda: sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with collect_lineage(spark) as events:
        spark.range(10).write.parquet(str(tmp_path / "out"))
    warned = [each.message for each in caplog.records if each.name.startswith("headwater.lineage")]
    assert len(warned) == 1, warned
    assert "Lineage without columns" in warned[0]
    assert "NothingThatSparkHas" in warned[0]
    written = events.only("COMPLETE", output=str(tmp_path / "out"))
    assert written["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
    assert "compiled agent" in errors(written)
    assert not list((tmp_path / "cache").rglob("*.classes")), "what did not compile is not kept"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "jdbc:postgresql://me:secret@db/shop?password=x",
            "jdbc:postgresql://db/shop?password=*********(redacted)",
        ),
        ("abfss://box@account/path", "abfss://box@account/path"),
        ("/data/orders", "/data/orders"),
    ],
)
def test_secrets_are_masked_when_they_stand_in_a_url(text: str, expected: str) -> None:
    assert masked(text) == expected
