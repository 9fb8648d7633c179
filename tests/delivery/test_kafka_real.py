"""The kafka outlet against a real broker that is killed midway.

20,000 events; HEADWATER_KAFKA_EVENTS=100000 for the long form.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.delivery.rig import Rig, eventually
from tests.parts.kafka_broker import KafkaBroker

kafka = pytest.importorskip("confluent_kafka", reason="pip install 'headwater[kafka]'")
admin = pytest.importorskip("confluent_kafka.admin")

EVENTS = int(os.environ.get("HEADWATER_KAFKA_EVENTS", "20000"))
KEYS = 500
PARTITIONS = 6


def make_topic(broker: KafkaBroker) -> str:
    topic = f"events-{uuid.uuid4().hex[:8]}"
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([admin.NewTopic(topic, PARTITIONS)])[topic].result(30)
    return topic


def append(rig: Rig, first: int, count: int) -> None:
    for start in range(first, first + count, 2000):
        end = min(first + count, start + 2000)
        rig.log.append_wait(
            [orjson.dumps({"key": f"key-{i % KEYS}", "i": i, "text": "x" * 200}) for i in range(start, end)]
        )


def received(broker: KafkaBroker, topic: str) -> dict[str, list[int]]:
    """Everything in the topic: the numbers of each key, in the order of its partition."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    ends = {
        partition: consumer.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout=30)[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([kafka.TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[str, list[int]] = defaultdict(list)
    partitions: dict[str, set[int | None]] = defaultdict(set)
    left, deadline = sum(ends.values()), time.monotonic() + 120
    while left and time.monotonic() < deadline:
        for got in consumer.consume(5000, timeout=1.0):
            assert got.error() is None
            value = orjson.loads(got.value() or b"")
            assert got.key() == value["key"].encode()
            found[value["key"]].append(value["i"])
            partitions[value["key"]].add(got.partition())
            left -= 1
    consumer.close()
    assert left == 0
    assert {len(of_key) for of_key in partitions.values()} == {1}
    return found


def repeated(found: dict[str, list[int]]) -> int:
    return sum(len(numbers) - len(set(numbers)) for numbers in found.values())


def firsts(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


def expected(count: int) -> dict[str, list[int]]:
    return {f"key-{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


def test_order_is_kept_and_none_is_missing_when_the_broker_is_killed_midway(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic = make_topic(kafka_broker)
    with Rig(tmp_path) as rig:
        append(rig, 0, EVENTS)
        rig.drain(type="kafka", servers=kafka_broker.bootstrap, topic=topic, group_by=("/key",))
        assert eventually(lambda: rig.balance()["delivered"] > EVENTS // 5, 120)
        kafka_broker.kill()
        before = rig.balance()["delivered"]
        kafka_broker.restart()
        assert eventually(rig.settled, 240)
        assert rig.balance() == {"delivered": EVENTS, "rejected": 0, "dropped": 0, "lag": 0}

    found = received(kafka_broker, topic)
    print(f"{EVENTS} events, {before} of them before the kill, {repeated(found)} repeated")
    assert before < EVENTS  # else nothing was under way
    # the producer is idempotent and lives on: what it sent twice, the broker took once
    assert found == expected(EVENTS)


def test_order_is_kept_and_none_is_missing_when_broker_and_outlet_restart_together(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic, count = make_topic(kafka_broker), EVENTS // 2
    settings: dict[str, Any] = {"servers": kafka_broker.bootstrap, "topic": topic, "group_by": ("/key",)}
    with Rig(tmp_path) as rig:
        append(rig, 0, count)
        rig.drain(type="kafka", **settings)
        assert eventually(lambda: rig.balance()["delivered"] > count // 5, 120)
        kafka_broker.kill()
        rig.restart()
        before = rig.balance()["delivered"]
        rig.drain(type="kafka", **settings)
        kafka_broker.restart()
        assert eventually(rig.settled, 240)

    found = received(kafka_broker, topic)
    print(f"{count} events, {before} of them before the restart, {repeated(found)} repeated")
    # a new producer cannot know what the old one had under way: those may come twice (G4), after their firsts
    assert {key: firsts(numbers) for key, numbers in found.items()} == expected(count)
    assert repeated(found) <= count - before
