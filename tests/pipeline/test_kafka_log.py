"""Kafka as the log of several gateways: every acknowledged event is one row, whichever process dies."""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import psycopg
import pytest

from headwater.log.files.event_counts import stat_events
from headwater.log.streams import stream_folder
from headwater.pipeline.stream.streams import Streams
from headwater.settings import Settings, parse
from tests.parts.kafka_broker import KafkaBroker
from tests.parts.postgres import PostgresServer
from tests.pipeline.stream_rig import until
from tests.support.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "server-secret"
BATCH = 20


class Sender(threading.Thread):
    """Sends events to a gateway one request after the other, and notes which were acknowledged."""

    def __init__(self, gateway: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._gateway = gateway
        self.acknowledged: list[str] = []
        self.refused: list[httpx2.Response] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with httpx2.Client(base_url=self._gateway, headers={"X-Auth-Token": SECRET}, timeout=60) as client:
            while not self.stopping.is_set():
                ids = [f"{self.name}-{number + i}" for i in range(BATCH)]
                number += BATCH
                try:
                    response = client.post("/api/v1/s2s/events", json=[{"id": id} for id in ids])
                except httpx2.HTTPError:
                    self.stopping.wait(0.1)  # it is dead: the events are not acknowledged
                    continue
                if response.status_code == 200:
                    assert response.json()["accepted"] == BATCH
                    self.acknowledged += ids
                else:
                    self.refused.append(response)


class Installation:
    """Settings that gateways and the pipeline share, except for their folders."""

    def __init__(self, folder: Path, broker: KafkaBroker, postgres: PostgresServer) -> None:
        self.folder = folder
        self.url = postgres.url
        self.schema = f"s{uuid.uuid4().hex[:10]}"
        kafka = {
            "servers": broker.bootstrap,
            "topic_prefix": f"{self.schema}.",
            "partitions": 2,
            "replicas": 1,
            "timeout_seconds": 2.0,
        }
        self.raw: dict[str, Any] = {
            "tokens": [{"id": "web", "server_secret": SECRET}],
            "events": {"kafka": kafka},
            "destinations": [
                {
                    "id": "dwh",
                    "type": "postgres",
                    "mode": "stream",
                    "url": self.url,
                    "schema": self.schema,
                }
            ],
            "pipeline": {"stream": {"trigger_seconds": 0.05, "max_retry_seconds": 0.5}},
        }

    def gateway(self, name: str) -> Server:
        folder = self.folder / name
        folder.mkdir()
        return Server(folder, self.raw | {"data_dir": str(folder / "data")})

    def settings(self) -> Settings:
        return parse(json.dumps(self.raw | {"data_dir": str(self.folder / "pipeline")}))

    def ids(self) -> list[str]:
        with psycopg.connect(self.url) as connection:
            try:
                return [row[0] for row in connection.execute(f'SELECT id FROM "{self.schema}".events')]
            except psycopg.errors.UndefinedTable:
                return []


@pytest.mark.timeout(3600)
@pytest.mark.long
def test_every_acknowledged_event_is_one_row_when_a_gateway_is_killed_and_the_broker_restarted(
    spark: SparkSession, kafka_broker: KafkaBroker, postgres: PostgresServer, tmp_path: Path, full: bool
) -> None:
    wanted = 300_000 if full else 3_000
    made = Installation(tmp_path, kafka_broker, postgres)
    gateways = [made.gateway("first"), made.gateway("second")]
    senders = [Sender(gateway.url, f"{i}") for i, gateway in enumerate(gateways)]
    settings = made.settings()

    def acknowledged() -> int:
        return sum(len(sender.acknowledged) for sender in senders)

    try:
        with Streams(settings, spark) as streams:
            for sender in senders:
                sender.start()
            until(lambda: acknowledged() > wanted // 3, "events")
            gateways[0].kill()
            until(lambda: acknowledged() > 2 * wanted // 3, "events by the other gateway")
            kafka_broker.kill()
            until(lambda: bool(senders[1].refused), "a refusal")
            kafka_broker.start()
            until(lambda: acknowledged() > wanted, "events after the outage")
            for sender in senders:
                sender.stopping.set()
                sender.join()
            expected = {id for sender in senders for id in sender.acknowledged}
            until(lambda: _tended(streams) and expected <= set(made.ids()), "rows")
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.wait()

    found = made.ids()
    assert len(found) == len(set(found)), "no event is there twice, acknowledged or not"
    assert expected <= set(found)
    assert {response.status_code for response in senders[1].refused} == {503}
    assert all(response.headers["Retry-After"] for response in senders[1].refused)
    found_streams = stat_events(settings.events_dir, time.time()).streams
    assert sorted(each.id for each in found_streams) == ["dwh topic.web.0", "dwh topic.web.1"]
    assert sum(each.rows for each in found_streams) == len(found)
    assert not any(each.missing or each.rejected for each in found_streams)


def _tended(streams: Streams) -> bool:
    streams.tend()
    return True


@pytest.mark.long
def test_nothing_is_doubled_when_the_cursors_were_lost(
    spark: SparkSession, kafka_broker: KafkaBroker, postgres: PostgresServer, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    made = Installation(tmp_path, kafka_broker, postgres)
    settings = made.settings()
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})

    def load(ids: list[str]) -> None:
        for id in ids:
            producer.produce(f"{made.schema}.web", json.dumps({"id": id}).encode(), partition=0)
        producer.flush(60)
        with Streams(settings, spark) as streams:
            until(lambda: _tended(streams) and set(made.ids()) >= set(ids), "rows")

    _make_topic(kafka_broker, f"{made.schema}.web", 1)
    load([f"a{n}" for n in range(30)])
    for cursor in settings.events_dir.glob("queue.dst=dwh/topic.*/stream/cursor.json"):
        cursor.unlink()
    load([f"b{n}" for n in range(10)])

    assert sorted(made.ids()) == sorted([f"a{n}" for n in range(30)] + [f"b{n}" for n in range(10)])
    assert stream_folder(settings.events_dir / "queue.dst=dwh" / "topic.web.0").is_dir()


def _make_topic(broker: KafkaBroker, name: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
