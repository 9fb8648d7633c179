"""A partition of a topic, read by position like a queue.

A position is Kafka's offset plus one, so that the first position is 1, as in a queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headwater.errors import LogUnavailable
from headwater.log.kafka.client import client_config
from headwater.log.queue.commit_format import Commit
from headwater.settings import KafkaSettings

ASK_SECONDS = 3.0
PATIENCE_SECONDS = 60.0
"""How long the brokers may be unreachable before a read, or the look for new events, fails."""
WAIT_SECONDS = 1.0
READ_EVENTS = 10_000


class TopicReader:
    """Reads one partition. For one thread; `known_end` for any. Joins no group: its user keeps positions."""

    def __init__(
        self, settings: KafkaSettings, topic: str, partition: int, *, ask_seconds: float = ASK_SECONDS
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._ask_seconds = ask_seconds
        self._asking: Any = None
        self._known: tuple[int, int] | None = None
        self._known_at = 0.0

    def __str__(self) -> str:
        return f"topic {self._topic}, partition {self._partition}"

    @property
    def known_end(self) -> int:
        """The position after the last event, as a broker last reported it."""
        return self._known[1] + 1 if self._known else 1

    def oldest(self) -> int:
        """The first position that is kept, or the next to come."""
        return self._ends()[0] + 1

    def newest(self) -> int:
        """The position after the last event that was acknowledged."""
        return self._ends()[1] + 1

    def _ends(self) -> tuple[int, int]:
        """The first and the next offset; the last known ones while the broker is briefly unreachable."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._asking is None:
            self._asking = self._consumer()
        place = TopicPartition(self._topic, self._partition)
        try:
            found = self._asking.get_watermark_offsets(place, timeout=self._ask_seconds, cached=False)
        except KafkaException as error:
            if self._known is None or time.monotonic() - self._known_at > PATIENCE_SECONDS:
                raise LogUnavailable(f"{self}: {error.args[0]}.") from error
            return self._known
        self._known, self._known_at = (int(found[0]), int(found[1])), time.monotonic()
        return self._known

    def read(self, first: int, end: int) -> Iterator[Commit]:
        """The events from one position up to another; those that are not there any more are left out."""
        from confluent_kafka import KafkaError

        consumer = self._consumer()
        try:
            self._seek(consumer, first)
            at, problem = first, "no answer"
            deadline = time.monotonic() + PATIENCE_SECONDS
            while at < end:
                reached = at
                for found in consumer.consume(min(READ_EVENTS, end - at), WAIT_SECONDS):
                    if (error := found.error()) is None:
                        position = found.offset() + 1
                        if position < end:
                            yield Commit(position, found.timestamp()[1] / 1000, [found.value() or b""])
                        reached = position + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        reached = max(reached, found.offset() + 1)
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                        reached = max(at, self.oldest())
                        self._seek(consumer, reached)
                    else:
                        problem = error.str()
                if reached > at:
                    at, deadline = reached, time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f"{self}: nothing from position {at} on: {problem}.")
        finally:
            consumer.close()

    def _seek(self, consumer: Any, position: int) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self._topic, self._partition, position - 1)])

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **client_config(self._settings),
                "group.id": "headwater",  # librdkafka needs one; it is never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None
