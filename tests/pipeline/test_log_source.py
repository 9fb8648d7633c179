"""The log as a Spark data source."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.log.queue.log import Log
from headwater.log.queue.partition_file import partition_paths
from headwater.pipeline import register
from headwater.settings import LogSettings
from tests.pipeline.stream_rig import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def body(number: int) -> bytes:
    noise = random.Random(number).randbytes(60).hex()  # else it is packed to nothing
    return f'{{"n": {number}, "text": "líne {noise}"}}'.encode()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log.open(tmp_path / "queue", LogSettings(partition_bytes=65536))
    yield opened
    opened.close()


@pytest.fixture
def events(spark: SparkSession, log: Log) -> DataFrame:
    register(spark)
    for at in range(0, 3_000, 100):
        log.append_wait([body(number) for number in range(at, at + 100)])
    reader = spark.read.format("headwater").option("path", str(log.folder))
    return reader.option("partition_events", "700").load()


def test_all_events_are_read_in_order_when_the_log_is_being_written(events: DataFrame, log: Log) -> None:
    assert len(partition_paths(log.folder)) > 1
    assert events.rdd.getNumPartitions() == 5
    rows = events.collect()
    assert [row["position"] for row in rows] == list(range(1, 3_001))
    assert [row["body"] for row in rows] == [body(number).decode() for number in range(3_000)]
    assert all(row["time"] is not None for row in rows)


def test_columns_and_positions_are_chosen_when_they_are_asked_for(
    spark: SparkSession, events: DataFrame, log: Log
) -> None:
    reader = spark.read.format("headwater").schema("body binary, position long")
    found = reader.options(path=str(log.folder), first="205", end="207").load().collect()
    assert [(bytes(row["body"]), row["position"]) for row in found] == [
        (body(204), 205),
        (body(205), 206),
    ]


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, None, "`path` is missing"),
        ({"path": "x", "first": "-1"}, None, "`first` must be a number"),
        ({"path": "x"}, "name string", "no column `name`"),
        ({"path": "x"}, "body int", "no column `body` of the type int"),
    ],
)
def test_an_error_is_raised_when_an_option_is_wrong(
    spark: SparkSession, options: dict[str, str], schema: str | None, message: str
) -> None:
    from pyspark.errors import PySparkException

    register(spark)
    reader = spark.read.format("headwater").options(**options)
    with pytest.raises(PySparkException, match=message):
        (reader.schema(schema) if schema else reader).load().collect()


def test_loss_is_an_error_unless_it_is_allowed_when_a_partition_is_gone(
    spark: SparkSession, events: DataFrame, log: Log
) -> None:
    from pyspark.errors import PySparkException

    paths = partition_paths(log.folder)
    paths[0].unlink()
    reader = spark.read.format("headwater").options(path=str(log.folder), first="1")
    with pytest.raises(PySparkException, match="positions 1 to"):
        reader.load().collect()
    first = int(paths[1].stem)
    assert reader.option("fail_on_loss", "false").load().count() == 3_000 - (first - 1)


def test_micro_batches_are_limited_and_go_on_where_they_were_when_restarted(
    spark: SparkSession, events: DataFrame, log: Log, tmp_path: Path
) -> None:
    batches: list[list[int]] = []

    def take(frame: DataFrame, batch_id: int) -> None:
        batches.append([row["position"] for row in frame.select("position").collect()])

    stream = spark.readStream.format("headwater").options(
        path=str(log.folder), start="101", max_events="2000"
    )
    writer = (
        stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "state"))
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [len(batch) for batch in batches] == [2_000, 900]
    log.append_wait([body(3_000)])
    query = writer.trigger(processingTime="0.05 seconds").start()
    until(lambda: len(batches) == 3)
    query.stop()
    assert batches[2] == [3_001]
