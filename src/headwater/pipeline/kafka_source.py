"""A partition of a Kafka topic as a Spark data source, read like a queue: `.format("headwater-kafka")`.

Needs no connector of Spark's. Columns `position`, `time` and `body` as of a queue; a position is one more
than Kafka's own number of the event, so that the first is 1 here too. Options: `topic`, `partition`,
`client_secrets` (JSON: the client's settings), and `start`, `first`, `end`, `max_events`, `partition_events`
and `fail_on_loss` as of a queue.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from headwater.errors import LogUnavailable
from headwater.pipeline.queue_source import (
    BATCH_EVENTS,
    MAX_EVENTS,
    PARTITION_EVENTS,
    BatchReader,
    StreamReader,
    Stretch,
    number,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["CLIENT", "NAME", "KafkaSource", "Partition", "register"]

NAME = "headwater-kafka"
CLIENT = "client_secrets"  # Spark never shows what is called a secret
ASK_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""So long a broker may be away before a read, or the look for new events, fails."""
WAIT_SECONDS = 1.0


def register(spark: SparkSession) -> None:
    """Let the session read topics by `.format("headwater-kafka")`."""
    spark.dataSource.register(KafkaSource)


class KafkaSource(DataSource):
    """One partition of a topic."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "position bigint, time timestamp, body string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(Partition(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(Partition(self.options))


class Partition:
    """What both readers ask; goes to the executors with them."""

    def __init__(self, options: Any) -> None:
        given = {str(name).lower(): str(value) for name, value in dict(options).items()}
        self.topic = given["topic"]
        self.partition = number(given, "partition", 0)
        self.client = msgspec.json.decode(given[CLIENT], type=dict[str, str])
        self.start = given.get("start", "earliest")
        self.first = number(given, "first", 0)
        self.end = number(given, "end", 0)
        self.max_events = max(1, number(given, "max_events", MAX_EVENTS))
        self.partition_events = max(1, number(given, "partition_events", PARTITION_EVENTS))
        self.fail_on_loss = given.get("fail_on_loss", "true").lower() != "false"
        self._consumer: Any = None
        self._known: tuple[int, int] | None = None
        self._known_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_consumer": None, "_known": None}

    def oldest(self) -> int:
        return self._ends()[0] + 1

    def newest(self) -> int:
        return self._ends()[1] + 1

    def _ends(self) -> tuple[int, int]:
        """Where it begins and ends. While the broker is away for a moment: as far as was known."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._consumer is None:
            self._consumer = _consumer(self.client)
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, self.partition), timeout=ASK_SECONDS, cached=False
            )
        except KafkaException as error:
            if self._known is None or time.monotonic() - self._known_at > PATIENCE_SECONDS:
                raise LogUnavailable(f"{self}: {error.args[0]}.") from error
            return self._known
        self._known, self._known_at = (int(found[0]), int(found[1])), time.monotonic()
        return self._known

    def stretches(self, first: int, end: int) -> list[Stretch]:
        step = self.partition_events
        return [Stretch(at, min(at + step, end)) for at in range(first, end, step)]

    def read(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """The events of a stretch, some in memory at a time (G8)."""
        consumer = _consumer(self.client)
        try:
            at = stretch.first
            self._seek(consumer, at)
            deadline = time.monotonic() + PATIENCE_SECONDS
            problem = "no answer"
            while at < stretch.end:
                events, reached = [], at
                for found in consumer.consume(min(BATCH_EVENTS, stretch.end - at), WAIT_SECONDS):
                    if (error := found.error()) is None:
                        reached = found.offset() + 2
                        if reached <= stretch.end:
                            events.append(found)
                    elif error.code() == _END:
                        reached = max(reached, found.offset() + 1)
                    elif error.code() == _LOST:
                        reached = self._after_loss(consumer, at)
                    else:
                        problem = error.str()
                if events:
                    yield _batch(events)
                if reached > at:
                    at, deadline = reached, time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f"{self}: nothing from position {at} on: {problem}.")
        finally:
            consumer.close()

    def _seek(self, consumer: Any, position: int) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self.topic, self.partition, position - 1)])

    def _after_loss(self, consumer: Any, position: int) -> int:
        """Go on at the oldest event that is kept, if that is allowed."""
        oldest = self.oldest()
        if self.fail_on_loss or oldest <= position:
            raise LogUnavailable(
                f"{self} does not have the position {position} any more; it begins at {oldest}.",
                hint="Keep events longer (`retention.ms` of the topic) than the pipeline is ever behind.",
            )
        self._seek(consumer, oldest)
        return oldest

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}"


_END = -191  # KafkaError._PARTITION_EOF, without the package where nothing is read
_LOST = -140  # KafkaError._AUTO_OFFSET_RESET


def _consumer(client: dict[str, str]) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "log_level": 0,  # what is wrong is in the errors
            **client,
            "group.id": "headwater",  # it asks for one; none is joined, and positions are kept elsewhere
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )


def _batch(events: list[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    bodies = [event.value() or b"" for event in events]
    positions = array("q", (event.offset() + 1 for event in events))
    times = array("q", (event.timestamp()[1] * 1000 for event in events))
    ends = array("i", accumulate(map(len, bodies), initial=0))
    count = len(events)
    arrays = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(positions)]),
        pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, pa.py_buffer(times)]),
        # not by pa.array(): it would copy each event once more, and look whether it is UTF-8
        pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))]),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["position", "time", "body"])
