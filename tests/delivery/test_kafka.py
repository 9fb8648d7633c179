"""The Kafka outlet before librdkafka's mock brokers; a real broker is used elsewhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError

from headwater.clock import ManualClock
from headwater.delivery import Client
from headwater.delivery.outlets.base import DELIVERED, NotConnected, Refused, Retry
from headwater.delivery.outlets.kafka import CONNECT_SECONDS, KafkaOutlet
from headwater.errors import OutletUnavailable, SettingsError
from headwater.log.kafka.client import REPEAT_SECONDS, RepeatFilter
from headwater.settings import OutletSettings, convert
from headwater.testing.outlets import batch_of
from tests.delivery.mock_kafka import MockCluster
from tests.delivery.rig import QUICK, Rig, eventually


def outlet_of(
    servers: str, on_refused: str = "reject", connect_seconds: float = CONNECT_SECONDS, **options: Any
) -> KafkaOutlet:
    settings = convert(
        {"name": "kafka", "type": "kafka", "on_refused": on_refused}, OutletSettings, source="test"
    )
    own = convert({"servers": servers, "topic": "events"} | options, KafkaOutlet.Settings, source="test")
    return KafkaOutlet(own, settings, connect_seconds=connect_seconds)


def test_keys_share_a_partition_in_order_when_events_are_grouped() -> None:
    cluster = MockCluster()
    settings = OutletSettings(
        name="kafka",
        type="kafka",
        group_by=("/k",),
        retry=QUICK,
        max_batch_events=50,
        options={"servers": cluster.servers, "topic": "events"},
    )
    with Client(settings) as client:
        for i in range(100):
            client.add_events([{"k": f"key {k}", "i": i} for k in range(10)])
        assert client.flush(60)
    seen: dict[str, list[int]] = {}
    for key, value in cluster.read("events"):
        event = orjson.loads(value)
        assert event["k"] == key
        seen.setdefault(key, []).append(event["i"])
    assert len(seen) == 10
    assert all(ids == list(range(100)) for ids in seen.values())


def test_all_events_share_a_key_when_they_are_not_grouped() -> None:
    cluster = MockCluster()
    settings = OutletSettings(
        name="kafka", type="kafka", options={"servers": cluster.servers, "topic": "events"}
    )
    with Client(settings) as client:
        client.add_events([{"i": i} for i in range(200)])
        assert client.flush(60)
    found = cluster.read("events")
    assert [orjson.loads(value)["i"] for _, value in found] == list(range(200))
    assert {key for key, _ in found} == {"kafka"}


def test_an_event_is_refused_when_it_is_too_large_for_the_producer() -> None:
    cluster = MockCluster()
    outlet = outlet_of(cluster.servers, config={"message.max.bytes": "1000"})

    async def work() -> None:
        await outlet.connect()
        results = await outlet.send(batch_of(outlet, ["a", "b" * 5_000, "c"]))
        assert [type(result) for result in results] == [type(DELIVERED), Refused, type(DELIVERED)]
        await outlet.close()

    asyncio.run(work())
    assert [orjson.loads(value)["name"] for _, value in cluster.read("events")] == ["a", "c"]


def test_events_are_produced_once_when_a_try_ran_into_its_timeout() -> None:
    cluster = MockCluster()
    outlet = outlet_of(cluster.servers, config={"linger.ms": "400"})

    async def work() -> None:
        await outlet.connect()
        batch = batch_of(outlet, ["a", "b", "c"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(outlet.send(batch), 0.05)
        assert await outlet.send(batch) == [DELIVERED] * 3
        await outlet.close()

    asyncio.run(work())
    assert [orjson.loads(value)["name"] for _, value in cluster.read("events")] == ["a", "b", "c"]


def test_the_rest_is_sent_next_when_the_producers_queue_is_full() -> None:
    cluster = MockCluster()
    outlet = outlet_of(cluster.servers, config={"linger.ms": "300", "queue.buffering.max.messages": "2"})

    async def work() -> None:
        await outlet.connect()
        assert await outlet.send(batch_of(outlet, ["a", "b", "c"])) == [DELIVERED] * 2
        first = asyncio.create_task(outlet.send(batch_of(outlet, ["a", "b"])))
        await asyncio.sleep(0)  # it has handed both to the producer, which lingers
        with pytest.raises(OutletUnavailable, match="takes no more"):
            await outlet.send(batch_of(outlet, ["c"], ("/name",)))
        # an event whose report is just being given still takes up room: one of the two may have found none
        assert await first in ([DELIVERED], [DELIVERED] * 2)
        await outlet.close()

    asyncio.run(work())


def test_connecting_fails_retryably_when_no_broker_is_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        outlet = outlet_of(f"127.0.0.1:{probe.getsockname()[1]}", connect_seconds=0.3)
        with pytest.raises(OutletUnavailable, match="cannot be reached"):
            asyncio.run(outlet.connect())
        with pytest.raises(NotConnected):
            asyncio.run(outlet.send(batch_of(outlet, ["a"])))


def test_connecting_fails_retryably_when_a_setting_is_unknown_to_the_library() -> None:
    outlet = outlet_of("127.0.0.1:9", config={"no.such.setting": "x"})
    with pytest.raises(OutletUnavailable, match=r"no\.such\.setting"):
        asyncio.run(outlet.connect())


def test_settings_are_refused_when_they_would_endanger_the_order() -> None:
    with pytest.raises(SettingsError, match=r"config\.acks"):
        outlet_of("127.0.0.1:9", config={"acks": "0"})


def test_events_go_one_by_one_when_a_refused_one_may_not_be_overtaken() -> None:
    assert outlet_of("127.0.0.1:9", "block").max_events == 1
    assert outlet_of("127.0.0.1:9").max_events is None


def test_lines_are_few_and_the_reason_is_reported_when_the_brokers_go_away(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = MockCluster()
    rig.append(*range(10))
    worker = rig.drain(type="kafka", servers=cluster.servers, topic="events")
    assert eventually(rig.settled)
    assert worker.trouble() is None
    caplog.clear()
    del cluster
    gc.collect()
    rig.append(*range(10, 20))
    # long before the request runs into its timeout of 30 seconds
    assert eventually(lambda: worker.trouble() is not None, 20)
    assert "takes no events" in (worker.trouble() or "")
    time.sleep(2)  # librdkafka logs several lines a second meanwhile
    found = [record for record in caplog.records if "librdkafka" in record.name]
    kinds = [str(record.args[0]) for record in found if isinstance(record.args, tuple) and record.args]
    assert kinds
    assert len(kinds) == len(set(kinds))
    worker.close(0.1)


def test_a_line_of_each_kind_is_passed_once_a_minute_with_the_number_of_the_others() -> None:
    clock = ManualClock()
    repeats = RepeatFilter(clock)

    def passed(kind: str) -> str | None:
        record = logging.LogRecord("k", logging.ERROR, "", 0, "%s [%s] %s", (kind, "x", "refused"), None)
        return record.getMessage() if repeats.filter(record) else None

    assert passed("FAIL") == "FAIL [x] refused"
    assert passed("ERROR") == "ERROR [x] refused"
    assert [passed("FAIL") for _ in range(5)] == [None] * 5
    clock.advance(REPEAT_SECONDS)
    assert passed("FAIL") == "FAIL [x] refused (and 5 lines like this one since the last)"
    assert passed("FAIL") is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Refused),
        (KafkaError.INVALID_RECORD, Refused),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Retry),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Retry),
        (KafkaError._MSG_TIMED_OUT, Retry),
    ],
)
def test_an_error_is_about_the_event_when_the_table_says_so(code: int, kind: type) -> None:
    outlet = outlet_of("127.0.0.1:9")
    assert isinstance(outlet.result(KafkaError(code)), kind)
    assert outlet.result(None) is DELIVERED
