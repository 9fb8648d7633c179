from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from headwater.delivery import Client
from headwater.delivery.batches import Buffer
from headwater.delivery.keys import Keys
from headwater.delivery.outlets.base import Batch
from headwater.delivery.outlets.dataset import DataSetOutlet
from headwater.delivery.trim import TRIMMED_FIELD
from headwater.errors import EventRefused, OutletUnavailable, SettingsError
from headwater.events import Event
from headwater.settings import OutletSettings, RetrySettings, convert
from headwater.testing import Answer, DataSetServer
from tests.delivery.rig import QUICK, eventually


def outlet_of(group_by: tuple[str, ...] = (), url: str = "http://unused", **options: Any) -> DataSetOutlet:
    settings = OutletSettings(name="dataset", type="dataset", group_by=group_by, max_batch_bytes=1 << 23)
    own = convert({"url": url, "api_key": "token", **options}, DataSetOutlet.Settings, source="test")
    return DataSetOutlet(own, settings)


def batch_of(outlet: DataSetOutlet, *events: Any) -> Batch:
    bodies = [orjson.dumps(event) for event in events]
    key = Keys(outlet.settings.group_by).of(bodies[0])
    buffer = Buffer(outlet, f"client-{key.id}", key)
    for i, body in enumerate(bodies):
        assert buffer.add(Event(i + 1, 1_700_000_000.5, body))
    assert len(outlet.payload(buffer.batch)) <= buffer.bytes
    return buffer.batch


def payload_of(outlet: DataSetOutlet, *events: Any) -> Any:
    return orjson.loads(outlet.payload(batch_of(outlet, *events)))


def test_a_request_has_all_its_parts_when_everything_is_configured() -> None:
    outlet = outlet_of(
        group_by=("/host", "/app/name"),
        server_host="here",
        session_info={"team": "data"},
        time="/at",
        severity="/level",
        thread="/thread",
        log_fields=("/file",),
    )
    event = {
        "host": "h1",
        "app": {"name": "web", "version": 2},
        "at": "2026-01-02T03:04:05.123456789Z",
        "level": "warning",
        "thread": "main",
        "file": "/var/log/x",
        "list": [1, {"a": 2}],
        "empty": {},
        "deep": {"er": {"est": True}},
        "none": None,
    }
    payload = payload_of(outlet, event, event | {"thread": 7, "at": None, "level": 99})
    (thread, other), (log,) = payload["threads"], payload["logs"]
    assert payload["token"] == "token"
    assert payload["session"].startswith("client-")
    assert payload["sessionInfo"] == {"serverHost": "here", "team": "data", "host": "h1", "app.name": "web"}
    assert (thread["name"], other["name"]) == ("main", "7")
    assert log["attrs"] == {"file": "/var/log/x"}
    first, second = payload["events"]
    assert first == {
        "ts": "1767323045123456789",
        "sev": 4,
        "thread": thread["id"],
        "log": log["id"],
        "attrs": {
            "app.version": 2,
            "at": "2026-01-02T03:04:05.123456789Z",
            "level": "warning",
            "thread": "main",
            "list": '[1,{"a":2}]',
            "empty": "{}",
            "deep.er.est": True,
            "none": None,
        },
    }
    assert (second["ts"], second["sev"], second["thread"]) == ("1700000000500000000", 6, other["id"])


@pytest.mark.parametrize(
    ("value", "ts"),
    [
        (1_767_323_045, "1767323045000000000"),
        (1_767_323_045_123, "1767323045123000000"),
        (1_767_323_045_123_456, "1767323045123456000"),
        (1_767_323_045_123_456_789, "1767323045123456789"),
        ("2026-01-02T03:04:05+01:00", "1767319445000000000"),
        ("2026-01-02T03:04:05.5", "1767323045500000000"),
        ("yesterday", "1700000000500000000"),
        (True, "1700000000500000000"),
        (-1, "1700000000500000000"),
        (12, "1700000000500000000"),
        (1e300, "1700000000500000000"),
        (None, "1700000000500000000"),
        ({"a": 1}, "1700000000500000000"),
    ],
)
def test_the_time_is_understood_when_it_has_one_of_the_usual_forms(value: Any, ts: str) -> None:
    payload = payload_of(outlet_of(time="/t"), {"t": value})
    assert payload["events"][0]["ts"] == ts


@pytest.mark.parametrize(
    ("value", "sev"),
    [(0, 0), (6, 6), (-3, 0), (9, 6), ("ERROR", 5), ("debug", 2), ("odd", 3), (True, 3), (None, 3)],
)
def test_the_severity_is_understood_when_it_is_a_number_or_a_name(value: Any, sev: int) -> None:
    assert payload_of(outlet_of(severity="/s"), {"s": value})["events"][0]["sev"] == sev


def test_no_thread_is_named_when_the_event_has_none() -> None:
    payload = payload_of(outlet_of(thread="/thread"), {"a": 1}, {"thread": None})
    assert payload["threads"] == []
    assert "thread" not in payload["events"][0]


def test_shared_parts_are_counted_and_sent_once_when_events_have_them_in_common() -> None:
    outlet = outlet_of(log_fields=("/file",), thread="/thread")
    payload = payload_of(outlet, *[{"file": f"f{i % 2}", "thread": f"t{i % 3}", "i": i} for i in range(30)])
    assert len(payload["logs"]) == 2
    assert len(payload["threads"]) == 3


@pytest.mark.parametrize("body", [b"[1]", b'"text"', b"not json"])
@pytest.mark.parametrize("thread", ["", "/thread"])
def test_an_event_is_refused_when_it_is_no_object(body: bytes, thread: str) -> None:
    outlet = outlet_of(thread=thread)
    buffer = Buffer(outlet, "session", Keys().of(body))
    with pytest.raises(EventRefused, match="DataSet takes objects"):
        buffer.add(Event(1, 0.0, body))


def test_a_large_event_is_trimmed_in_its_attributes_when_it_exceeds_six_megabytes() -> None:
    outlet = outlet_of(log_fields=("/file",))
    text = "ä" * 2_000_000  # 4 MB in UTF-8
    batch = batch_of(outlet, {"file": "f", "one": text, "two": text[:1_500_000], "small": "kept"})
    assert len(outlet.payload(batch)) <= 6_000_000
    (event,) = orjson.loads(outlet.payload(batch))["events"]
    assert event["attrs"]["small"] == "kept"
    assert event["attrs"]["two"] == text[:1_500_000]
    assert set(event["attrs"]["one"]) == {"ä"}
    assert event["attrs"][TRIMMED_FIELD] == "/one: 4000000 bytes"
    assert event["log"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=200, body=b"<html>"), OutletUnavailable),
        (Answer(status=200, body=b'{"status": "error/server/backoff"}'), OutletUnavailable),
        (Answer(status=200, body=b'{"status": "error/client/noPermission"}'), OutletUnavailable),
        (Answer(status=200, body=b'{"status": "something new"}'), OutletUnavailable),
        (Answer(status=200, body=b'{"status": "error/client/badParam", "message": "x"}'), EventRefused),
        (Answer(status=401), OutletUnavailable),
        (Answer(status=429), OutletUnavailable),
        (Answer(status=503, body=b'{"status": "error"}'), OutletUnavailable),
        (Answer(status=400), EventRefused),
        (Answer(status=413), EventRefused),
    ],
)
def test_an_answer_is_no_success_when_status_or_body_say_otherwise(
    answer: Answer, error: type[Exception]
) -> None:
    with DataSetServer() as server:
        answer.keep = False
        server.answer_next(answer)
        outlet = outlet_of(url=server.url)

        async def work() -> None:
            await outlet.connect()
            with pytest.raises(error):
                await outlet.send(batch_of(outlet, {"a": 1}))
            await outlet.send(batch_of(outlet, {"a": 2}))
            await outlet.close()

        asyncio.run(work())
        assert [body["events"][0]["attrs"] for body in server.bodies] == [{"a": 2}]


def test_a_wrong_token_is_waited_out_when_the_server_does_not_know_it() -> None:
    with DataSetServer(token="other") as server:
        settings = OutletSettings(
            name="dataset", type="dataset", retry=QUICK, options={"url": server.url, "api_key": "token"}
        )
        client = Client(settings)
        client.add_events([{"a": 1}])
        assert eventually(lambda: "no such token" in (client.trouble() or ""))
        assert len(client.close(0.01)) == 1


def test_settings_are_refused_when_they_cannot_be_meant() -> None:
    with pytest.raises(SettingsError, match="api_key"):
        convert({}, DataSetOutlet.Settings, source="test")
    with pytest.raises(SettingsError, match="JSON pointer"):
        outlet_of(time="at")
    with pytest.raises(SettingsError, match="max_request_bytes"):
        outlet_of(max_request_bytes=7_000_000)


def test_the_server_fails_the_test_when_a_session_has_two_requests_at_once() -> None:
    server = DataSetServer(latency_seconds=0.2).start()
    outlet = outlet_of(url=server.url)

    async def work() -> None:
        await outlet.connect()
        batch = batch_of(outlet, {"a": 1})
        await asyncio.gather(outlet.send(batch), outlet.send(batch), return_exceptions=True)
        await outlet.close()

    asyncio.run(work())
    with pytest.raises(AssertionError, match="overlaps another"):
        server.stop()


def test_the_server_fails_the_test_when_a_request_is_too_large() -> None:
    server = DataSetServer(max_bytes=100).start()
    outlet = outlet_of(url=server.url)

    async def work() -> None:
        await outlet.connect()
        with pytest.raises(EventRefused, match="413"):
            await outlet.send(batch_of(outlet, {"a": "x" * 200}))
        await outlet.close()

    asyncio.run(work())
    with pytest.raises(AssertionError, match="has 362 bytes"):
        server.stop()


def test_all_sessions_arrive_in_order_when_queue_servers_restart_one_by_one() -> None:
    with DataSetServer(latency_seconds=0.001, queues=4) as server:
        settings = OutletSettings(
            name="dataset",
            type="dataset",
            group_by=("/k",),
            max_in_flight=32,
            max_batch_events=20,
            recovery_seconds=0,
            retry=RetrySettings(initial_seconds=0.01, max_seconds=0.05),
            options={"url": server.url, "api_key": "token", "compression": "zstd"},
        )
        with Client(settings) as client:
            server.restart_all(0.1)
            for i in range(100):
                client.add_events([{"k": k, "i": i} for k in range(40)])
            assert client.flush(60)
            assert client.statistics().delivered == 4_000
        assert len(server.sessions) == 40
        for events in server.sessions.values():
            assert [event["attrs"]["i"] for event in events] == list(range(100))
        assert server.most_at_once > 1
