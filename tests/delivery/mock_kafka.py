"""librdkafka's mock brokers: real protocol over real sockets, inside this process."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition


class MockCluster:
    """Lives as long as this object; topics come into being when they are named."""

    def __init__(self, partitions: int = 4) -> None:
        self._host = Producer(
            {
                "bootstrap.servers": "",
                "test.mock.num.brokers": 1,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        brokers = self._host.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create(self, topic: str) -> None:
        """Create the topic, as brokers do when a client asks for its metadata."""
        self._host.list_topics(topic, timeout=10)

    def read(self, topic: str) -> list[tuple[str, bytes]]:
        """Keys and values of all events in the topic, in order within each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 10,  # the broker holds an empty fetch back for so long
            }
        )
        try:
            parts = [
                TopicPartition(topic, number, 0)
                for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions
            ]
            expected = sum(consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts)
            consumer.assign(parts)
            found: list[tuple[str, bytes]] = []
            deadline = time.monotonic() + 30
            while len(found) < expected and time.monotonic() < deadline:
                for one in consumer.consume(1000, timeout=0.2):
                    key, value = one.key() or b"", one.value()
                    assert one.error() is None
                    assert isinstance(key, bytes)
                    assert isinstance(value, bytes)
                    found.append((key.decode(), value))
            return found
        finally:
            consumer.close()
