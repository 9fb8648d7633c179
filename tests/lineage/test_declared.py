"""Rows that the program brings or stores itself, and columns followed from one query into the next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headwater.lineage.extend.declared import INPUT, OUTPUT, DeclaredOutput, reads_from, writes_to
from headwater.testing.lineage import Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def edges(event: dict[str, Any], output: str) -> dict[str, list[tuple[str, str]]]:
    """Field and first subtype of each field's inputs."""
    found = next(each for each in event["outputs"] if each["name"].endswith(output))
    return {
        field: [(one["field"], one["transformations"][0]["subtype"]) for one in entry["inputFields"]]
        for field, entry in found["facets"]["columnLineage"]["fields"].items()
    }


def orders(spark: SparkSession, folder: Path) -> DataFrame:
    path = str(folder / "orders")
    spark.range(10).selectExpr("id", "id * 2 as amount").write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def test_collected_rows_belong_to_a_dataset_when_the_program_says_so(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    frame = orders(spark, tmp_path).selectExpr("id", "amount + 1 as total", "1 as row_number")
    with writes_to(spark, "postgres://db:5432", "shop.public.orders", without=["row_number"]):
        assert len(frame.collect()) == 10
    assert spark.sparkContext.getLocalProperty(OUTPUT) is None
    event = events.only("COMPLETE", output="shop.public.orders")
    assert edges(event, "shop.public.orders") == {
        "id": [("id", "IDENTITY")],
        "total": [("amount", "TRANSFORMATION")],
    }
    schema = event["outputs"][0]["facets"]["schema"]["fields"]
    assert [field["name"] for field in schema] == ["id", "total"]


def test_a_declared_dataset_has_its_other_names_when_the_program_gives_some(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    other = ("https://catalog:8181", "web.orders")
    declared = DeclaredOutput("s3://lake", "web/orders", symlinks=(other, ("s3://lake", "web/orders")))
    frame = orders(spark, tmp_path)
    with writes_to(spark, "", ""):
        spark.sparkContext.setLocalProperty(OUTPUT, msgspec.json.encode(declared).decode())
        frame.collect()
    event = events.only("COMPLETE", output="web/orders")
    identifiers = event["outputs"][0]["facets"]["symlinks"]["identifiers"]
    assert [(each["namespace"], each["name"], each["type"]) for each in identifiers] == [(*other, "TABLE")]


@pytest.mark.parametrize("rows", [3, 30_000])
def test_rows_of_the_program_belong_to_a_dataset_when_it_says_so(
    spark: SparkSession, events: Events, tmp_path: Path, rows: int
) -> None:
    bodies = [('{"a": {"b": 1}}', n) for n in range(rows)]
    lines = spark.createDataFrame(bodies, "value string, position long")
    other = spark.createDataFrame([(1, "one")], "number long, word string")
    fields = lines.selectExpr("get_json_object(value, '$.a.b') as b", "position")
    made = fields.join(other, fields.b.cast("long") == other.number, "left")
    with reads_from(spark, "file", "/queues/day=1", columns=["value"]):
        made.write.parquet(str(tmp_path / "stored"))
    assert spark.sparkContext.getLocalProperty(INPUT) is None
    event = events.only("COMPLETE", output="stored")
    [read] = event["inputs"]
    assert (read["namespace"], read["name"]) == ("file", "/queues/day=1"), "as it was given"
    assert [field["name"] for field in read["facets"]["schema"]["fields"]] == ["value"]
    assert edges(event, "stored") == {
        "b": [("value", "TRANSFORMATION")],
        "position": [],
        "number": [],
        "word": [],
    }
    facet = event["outputs"][0]["facets"]["columnLineage"]
    assert facet["fields"]["b"]["inputFields"][0]["jsonPointer"] == "/a/b"


def test_columns_are_followed_through_a_checkpoint_when_rows_are_written_later(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    frame = orders(spark, tmp_path).where("amount > 2").selectExpr("id", "amount * 3 as three")
    kept = frame.localCheckpoint()
    kept.selectExpr("three + id as sum").write.mode("overwrite").parquet(str(tmp_path / "later"))
    event = events.only("COMPLETE", output="later")
    assert edges(event, "later") == {"sum": [("amount", "TRANSFORMATION"), ("id", "TRANSFORMATION")]}
    facet = event["outputs"][0]["facets"]["columnLineage"]
    assert [(one["field"], one["transformations"][0]["subtype"]) for one in facet["dataset"]] == [
        ("amount", "FILTER")
    ]
    assert "unknown" not in facet


def test_columns_are_followed_into_foreach_batch_when_a_stream_writes(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    orders(spark, tmp_path)
    stream = spark.readStream.schema("id long, amount long").parquet(str(tmp_path / "orders"))

    def store(batch: DataFrame, number: int) -> None:
        batch.selectExpr("half + 1 as h").write.mode("append").parquet(str(tmp_path / "stored"))

    query = (
        stream.selectExpr("amount / 2 as half")
        .writeStream.foreachBatch(store)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    event = events.only("COMPLETE", output="stored", job="micro_batch")
    assert edges(event, "stored") == {"h": [("amount", "TRANSFORMATION")]}


def test_rows_of_the_program_are_a_gap_when_they_are_written(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    collected = orders(spark, tmp_path).collect()
    spark.createDataFrame(collected).write.mode("overwrite").parquet(str(tmp_path / "again"))
    event = events.only("COMPLETE", output="again")
    facet = event["outputs"][0]["facets"]["columnLineage"]
    assert edges(event, "again") == {"id": [], "amount": []}
    assert [gap["what"] for gap in facet["unknown"]] == ["LogicalRDD"]
