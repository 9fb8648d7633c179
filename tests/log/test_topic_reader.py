"""A partition of a topic is read by position, whatever Kafka has dropped of it."""

from __future__ import annotations

import uuid

import pytest

from headwater.errors import LogUnavailable
from headwater.log.kafka.reader import TopicReader
from headwater.log.kafka.topics import Topics
from headwater.log.queue.group_commit import Receipt
from headwater.settings import KafkaSettings
from tests.parts.kafka_broker import KafkaBroker

BODIES = [f'{{"n": {number}}}'.encode() for number in range(1, 6)]


@pytest.fixture
def settings(kafka_broker: KafkaBroker) -> KafkaSettings:
    """A topic with five events in its only partition."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    made = KafkaSettings(servers=kafka_broker.bootstrap, topic_prefix=prefix, partitions=1, replicas=1)
    topics = Topics(made, ["web"])
    receipt = Receipt()
    topics.append("web", BODIES, Receipt.complete, receipt)
    receipt.future.result(120)
    topics.close()
    return made


def read(reader: TopicReader, first: int, end: int) -> list[tuple[int, bytes]]:
    return [(commit.first, commit.bodies[0]) for commit in reader.read(first, end)]


@pytest.mark.long
def test_events_are_read_by_position_when_they_are_asked_for(settings: KafkaSettings) -> None:
    reader = TopicReader(settings, settings.topic("web"), 0)
    assert reader.known_end == 1
    assert (reader.oldest(), reader.newest(), reader.known_end) == (1, 6, 6)
    assert read(reader, 1, 6) == list(enumerate(BODIES, 1))
    assert read(reader, 2, 4) == [(2, BODIES[1]), (3, BODIES[2])]
    reader.close()
    reader.close()
    assert reader.newest() == 6
    reader.close()


@pytest.mark.long
def test_what_is_kept_is_read_when_kafka_has_dropped_the_oldest(settings: KafkaSettings) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    place = TopicPartition(settings.topic("web"), 0, 3)
    admin = AdminClient({"bootstrap.servers": settings.servers})  # while it is there, it is answered
    admin.delete_records([place])[place].result(60)
    reader = TopicReader(settings, settings.topic("web"), 0)

    assert (reader.oldest(), reader.newest()) == (4, 6)
    assert read(reader, 1, 6) == [(4, BODIES[3]), (5, BODIES[4])]
    assert read(reader, 1, 3) == []
    reader.close()


def test_a_read_fails_when_no_broker_answers() -> None:
    reader = TopicReader(KafkaSettings(servers="127.0.0.1:1"), "headwater.web", 0, ask_seconds=0.2)
    with pytest.raises(LogUnavailable, match=r"topic headwater\.web, partition 0"):
        reader.newest()
    reader.close()
