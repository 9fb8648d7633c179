"""Kafka as the log: what is answered is in the topic, and what is not there is not answered."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.errors import HeadwaterError, LogClosed, LogUnavailable, SettingsError
from headwater.log.kafka.reader import TopicReader
from headwater.log.kafka.topics import Topics
from headwater.log.queue.group_commit import Receipt
from headwater.metrics import Metrics
from headwater.settings import KafkaSettings
from tests.parts.kafka_broker import KafkaBroker

LIMIT_SECONDS = 120.0


def settings_for(servers: str, **more: Any) -> KafkaSettings:
    prefix = f"t{uuid.uuid4().hex[:8]}."
    return KafkaSettings(servers=servers, topic_prefix=prefix, replicas=1, **({"partitions": 2} | more))


@pytest.fixture
def opened() -> Iterator[Callable[..., Topics]]:
    made: list[Topics] = []

    def open_topics(
        settings: KafkaSettings, metrics: Metrics | None = None, start_seconds: float = 30.0
    ) -> Topics:
        made.append(Topics(settings, ["web"], metrics=metrics, start_seconds=start_seconds))
        return made[-1]

    yield open_topics
    for each in made:
        each.close()


def append(topics: Topics, *bodies: bytes) -> None:
    """Wait for the answer; raises what it says."""
    receipt = Receipt()
    topics.append("web", bodies, Receipt.complete, receipt)
    receipt.future.result(LIMIT_SECONDS)


def bodies_in(settings: KafkaSettings, count: int) -> list[bytes]:
    """What is in the topic, in any order: at least so many."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": settings.servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        consumer.subscribe([settings.topic("web")])
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} events are there"
            found += [each.value() or b"" for each in consumer.consume(1000, 0.5) if each.error() is None]
        found += [each.value() or b"" for each in consumer.consume(1000, 0.5) if each.error() is None]
    finally:
        consumer.close()
    return sorted(found)


@pytest.mark.long
def test_events_are_in_the_topic_when_they_are_answered(
    kafka_broker: KafkaBroker, opened: Callable[..., Topics]
) -> None:
    settings, metrics = settings_for(kafka_broker.bootstrap), Metrics()
    topics = opened(settings, metrics)

    append(topics, b'{"n": 1}', b'{"n": 2}')
    append(topics, b'{"n": 3}')

    assert bodies_in(settings, 3) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    assert topics.healthy
    assert topics.pending_bytes == 0
    assert 'headwater_incoming_events_appended_total{token="web"} 3' in metrics.openmetrics()
    topics.close()
    with pytest.raises(LogClosed):
        append(topics, b"{}")


@pytest.mark.long
def test_an_event_is_taken_when_it_is_larger_than_kafkas_own_limit(
    kafka_broker: KafkaBroker, opened: Callable[..., Topics]
) -> None:
    settings = settings_for(kafka_broker.bootstrap, timeout_seconds=60.0)
    large = os.urandom(1_500_000).hex().encode()  # also when it is compressed

    append(opened(settings), large)

    assert bodies_in(settings, 1) == [large]


@pytest.mark.long
def test_nothing_is_acknowledged_and_memory_is_bounded_when_the_broker_is_unreachable_and_it_heals(
    kafka_broker: KafkaBroker, opened: Callable[..., Topics]
) -> None:
    settings = settings_for(kafka_broker.bootstrap, timeout_seconds=2.0, buffer_bytes=1024 * 1024)
    topics = opened(settings)
    append(topics, b'{"n": 1}')
    answers: list[HeadwaterError | None] = []

    def answer(tokens: list[Any], error: HeadwaterError | None) -> None:
        answers.extend([error] * len(tokens))

    readers = [TopicReader(settings, settings.topic("web"), partition) for partition in range(2)]
    ends = [reader.newest() for reader in readers]
    assert sorted(ends) == [1, 2]
    kafka_broker.kill()
    try:
        handed, refusal = 0, ""
        while not refusal:
            try:
                topics.append("web", [b"x" * 10_000], answer, None)
                handed += 1
            except LogUnavailable as error:
                refusal = error.text
            assert topics.pending_bytes <= 2 * 1024 * 1024
        assert "wait for it already" in refusal
        wait_until(lambda: len(answers) == handed)
        assert all(isinstance(error, LogUnavailable) for error in answers)
        assert topics.pending_bytes == 0
        assert not topics.healthy
        # who reads waits for a while, without an error
        assert [reader.newest() for reader in readers] == ends
    finally:
        for reader in readers:
            reader.close()
        kafka_broker.start()

    wait_until(lambda: is_taken(topics, b'{"n": 2}'))

    assert topics.healthy
    assert {b'{"n": 1}', b'{"n": 2}'} <= set(bodies_in(settings, 2))


def is_taken(topics: Topics, body: bytes) -> bool:
    try:
        append(topics, body)
    except LogUnavailable:
        return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_is_refused_when_there_has_been_no_broker_yet(opened: Callable[..., Topics]) -> None:
    topics = opened(settings_for("127.0.0.1:1"), start_seconds=0.1)  # no broker listens there

    with pytest.raises(LogUnavailable, match="does not exist yet"):
        append(topics, b"{}")
    assert not topics.healthy


@pytest.mark.long
def test_the_request_is_refused_when_one_of_its_events_does_not_fit(
    kafka_broker: KafkaBroker, opened: Callable[..., Topics]
) -> None:
    topics = opened(settings_for(kafka_broker.bootstrap))
    too_large = b"x" * 20_000_000

    with pytest.raises(LogUnavailable, match="too large"):
        append(topics, too_large)
    with pytest.raises(LogUnavailable, match="too large"):
        append(topics, b"{}", too_large)

    append(topics, b"{}")
    assert topics.pending_bytes == 0


@pytest.mark.parametrize(
    ("config", "part"),
    [
        pytest.param({"acks": "1"}, r"events\.kafka\.config\.acks", id="safety"),
        pytest.param({"no.such": "x"}, r"no\.such", id="unknown"),
    ],
)
def test_settings_of_the_client_are_refused_when_they_are_wrong(config: dict[str, str], part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        Topics(settings_for("127.0.0.1:1", config=config), ["web"])
