"""Topics before librdkafka's mock brokers; a real broker is used in test_topics.py."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headwater.errors import HeadwaterError, LogClosed, LogUnavailable
from headwater.log.kafka.client import KafkaProducer, client_config
from headwater.log.kafka.topics import Topics
from headwater.log.queue.group_commit import Receipt
from headwater.metrics import Metrics
from headwater.settings import KafkaSettings
from tests.delivery.mock_kafka import MockCluster


def settings_for(cluster: MockCluster, **more: Any) -> KafkaSettings:
    settings = KafkaSettings(
        servers=cluster.servers, topic_prefix=f"t{uuid.uuid4().hex[:8]}.", replicas=1, **more
    )
    cluster.create(settings.topic("web"))
    return settings


def append(topics: Topics, *bodies: bytes) -> None:
    receipt = Receipt()
    topics.append("web", bodies, Receipt.complete, receipt)
    receipt.future.result(60)


def test_events_are_in_the_topic_when_they_are_answered() -> None:
    cluster, metrics = MockCluster(), Metrics()
    settings = settings_for(cluster)
    topics = Topics(settings, ["web"], metrics=metrics)
    append(topics, b'{"n": 1}', b'{"n": 2}')
    assert sorted(value for _, value in cluster.read(settings.topic("web"))) == [b'{"n": 1}', b'{"n": 2}']
    assert topics.healthy
    assert topics.pending_bytes == 0
    assert 'headwater_incoming_events_appended_total{token="web"} 2' in metrics.openmetrics()
    topics.close()
    with pytest.raises(LogClosed):
        append(topics, b"{}")


def test_a_request_fails_when_one_of_its_events_is_too_large() -> None:
    cluster = MockCluster()
    topics = Topics(settings_for(cluster), ["web"])
    with pytest.raises(LogUnavailable, match="too large"):
        append(topics, b"{}", b"x" * 20_000_000)
    append(topics, b"{}")
    assert topics.pending_bytes == 0
    topics.close()


def test_pending_requests_are_answered_and_a_new_producer_is_used_when_one_fails_fatally() -> None:
    cluster = MockCluster()
    settings = settings_for(cluster, config={"linger.ms": "5000"})
    topics = Topics(settings, ["web"])
    answers: list[HeadwaterError | None] = []
    for number in range(10):
        topics.append("web", [b"%d" % number], lambda receipts, error: answers.append(error), None)
    first = topics._producer
    first.problem, first.is_broken = "a fatal error", True
    topics.append("web", [b"10"], lambda receipts, error: answers.append(error), None)
    first._thread.join(30)
    assert not first._thread.is_alive()
    assert topics._producer is not first
    topics.close()
    assert topics.pending_bytes == 0
    assert answers  # every request has its answer
    assert any(isinstance(error, LogUnavailable) for error in answers)


def test_topics_become_ready_when_the_creation_failed_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MockCluster()
    settings = settings_for(cluster)
    errors = [ValueError("not yet")]

    def config(settings: KafkaSettings) -> dict[str, Any]:
        if errors:
            raise errors.pop()
        return client_config(settings)

    producer = KafkaProducer({"bootstrap.servers": cluster.servers}, name="test")
    monkeypatch.setattr(Topics, "_new_producer", lambda self: producer)
    monkeypatch.setattr("headwater.log.kafka.topics.client_config", config)
    topics = Topics(settings, ["web"], start_seconds=30)
    assert not errors
    assert topics.healthy
    topics.close()
    assert not producer._thread.is_alive()
    with pytest.raises(LogClosed):
        producer.produce("any", b"", lambda error, message: None)
