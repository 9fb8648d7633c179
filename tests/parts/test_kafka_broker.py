"""The broker of other tests is a real one: what it acknowledged outlives kill -9."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.parts import cache, kafka_broker
from tests.parts.cache import Missing
from tests.parts.kafka_broker import KafkaBroker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install 'headwater[kafka]'")


def produce(broker: KafkaBroker, topic: str, values: list[bytes]) -> None:
    failures: list[object] = []

    def reported(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, on_delivery=reported)
    assert producer.flush(60) == 0
    assert failures == []


def consume(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [got.value() for got in consumer.consume(1000, timeout=1) if got.error() is None]
    consumer.close()
    return found


@pytest.mark.long
def test_acknowledged_data_is_still_there_when_the_broker_is_killed_and_restarted(
    kafka_broker: KafkaBroker,
) -> None:
    topic, bootstrap = "killed", kafka_broker.bootstrap
    before = [b"before %d" % number for number in range(1000)]
    produce(kafka_broker, topic, before)
    kafka_broker.kill()
    kafka_broker.restart()
    produce(kafka_broker, topic, [b"after"])

    assert kafka_broker.bootstrap == bootstrap
    assert consume(kafka_broker, topic, 1001) == [*before, b"after"]


def test_a_part_names_what_is_missing_when_java_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(Missing, match=r"Java 17 or newer.*JAVA_HOME"):
        kafka_broker.find_java()


def test_a_part_names_what_is_missing_when_maven_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HEADWATER_TEST_CACHE", str(tmp_path / "cache"))

    with pytest.raises(Missing, match="mvn"):
        kafka_broker.find_jars()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_is_filled_once_when_it_is_asked_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_TEST_CACHE", str(tmp_path))
    filled: list[Path] = []

    def fill(folder: Path) -> None:
        filled.append(folder)
        (folder / "part").write_text("whole")

    folders = {cache.once("thing", fill) for _ in range(2)}

    assert len(filled) == 1
    assert [(folder / "part").read_text() for folder in folders] == ["whole"]
