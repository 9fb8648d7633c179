"""The kafka outlet against a real broker that is killed midway."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from tests.delivery.rig import Rig, eventually
from tests.parts.kafka_broker import KafkaBroker

kafka = pytest.importorskip("confluent_kafka", reason="pip install 'headwater[kafka]'")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.long

EVENTS = 20_000
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


class Draining(NamedTuple):
    """A log and a topic of its own to which its events are delivered."""

    rig: Rig
    settings: dict[str, Any]

    def start(self) -> None:
        self.rig.drain(type="kafka", **self.settings)

    @property
    def delivered(self) -> int:
        return self.rig.balance()["delivered"]


@pytest.fixture
def draining(tmp_path: Path, kafka_broker: KafkaBroker) -> Iterator[Callable[[str, int], Draining]]:
    with ExitStack() as rigs:

        def make(name: str, count: int) -> Draining:
            rig = rigs.enter_context(Rig(tmp_path / name))
            append(rig, 0, count)
            topic = make_topic(kafka_broker)
            return Draining(rig, {"servers": kafka_broker.bootstrap, "topic": topic, "group_by": ("/key",)})

        yield make


def test_order_is_kept_and_none_is_missing_when_the_broker_is_killed_midway(
    kafka_broker: KafkaBroker, draining: Callable[[str, int], Draining]
) -> None:
    """One outlet lives on, another restarts while the broker is unreachable: one kill serves both."""
    counts = {"lasting": EVENTS, "restarted": EVENTS // 2}
    lasting, restarted = (draining(name, count // 2) for name, count in counts.items())
    lasting.start()
    restarted.start()
    assert eventually(lambda: lasting.delivered > EVENTS // 5 and restarted.delivered > EVENTS // 10, 120)
    append(restarted.rig, EVENTS // 4, EVENTS // 4)  # so that much is to be sent when the broker is killed
    append(lasting.rig, EVENTS // 2, EVENTS // 2)
    kafka_broker.kill()
    before_lasting = lasting.delivered
    restarted.rig.restart()
    before_restarted = restarted.delivered
    restarted.start()
    kafka_broker.restart()
    for each, count in zip((lasting, restarted), counts.values(), strict=True):
        assert eventually(each.rig.settled, 240)
        assert each.rig.balance() == {"delivered": count, "rejected": 0, "dropped": 0, "lag": 0}

    found = received(kafka_broker, lasting.settings["topic"])
    print(f"{EVENTS} events, {before_lasting} of them before the kill, {repeated(found)} repeated")
    assert before_lasting < EVENTS  # else nothing was under way
    # the producer is idempotent and lives on: what it sent twice, the broker took once
    assert found == expected(EVENTS)

    found = received(kafka_broker, restarted.settings["topic"])
    print(f"{EVENTS // 2} events, {before_restarted} before the restart, {repeated(found)} repeated")
    assert before_restarted < EVENTS // 2
    # a new producer cannot know what the old one had under way: those may come twice (G4), after their firsts
    assert {key: firsts(numbers) for key, numbers in found.items()} == expected(EVENTS // 2)
    assert repeated(found) <= EVENTS // 2 - before_restarted
