from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import __version__
from headwater.clock import ManualClock
from headwater.delivery import Client
from headwater.delivery.batches import Buffer
from headwater.delivery.event_time import event_nanoseconds
from headwater.delivery.keys import Keys
from headwater.delivery.outlets.base import Batch
from headwater.delivery.outlets.dataset import DataSetOutlet
from headwater.delivery.shorten_json import TRIMMED_FIELD
from headwater.errors import BatchRejected, EventRefused, OutletUnavailable, SettingsError
from headwater.events import Event
from headwater.settings import OutletSettings, RetrySettings, convert
from headwater.testing import Answer, DataSetServer, Request
from tests.delivery.rig import QUICK, Rig, body, eventually


def outlet_of(group_by: tuple[str, ...] = (), url: str = "http://unused", **options: Any) -> DataSetOutlet:
    settings = OutletSettings(name="dataset", type="dataset", group_by=group_by, max_batch_bytes=1 << 23)
    own = convert({"url": url, "api_key": "token", **options}, DataSetOutlet.Settings, source="test")
    return DataSetOutlet(own, settings)


def batch_of(outlet: DataSetOutlet, *events: Any) -> Batch:
    bodies = [orjson.dumps(event) for event in events]
    key = outlet.keys().of(bodies[0])
    buffer = Buffer(outlet, f"client-{key.id}", key)
    for i, each in enumerate(bodies):
        assert buffer.add(Event(i + 1, 1_700_000_000.5, each))
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
            "list": '[1,{"a":2}]',
            "empty": "{}",
            "deep.er.est": True,
            "none": None,
        },
    }
    assert (second["ts"], second["sev"], second["thread"]) == ("1700000000500000000", 6, other["id"])
    assert (second["attrs"]["at"], second["attrs"]["level"]) == (None, 99)  # not in the envelope as they are


TIMES = [
    pytest.param(value, ts, id=repr(value))
    for value, ts in [
        (1_767_323_045, "1767323045000000000"),
        (1_767_323_045_123, "1767323045123000000"),
        (1_767_323_045_123_456, "1767323045123456000"),
        (1_767_323_045_123_456_789, "1767323045123456789"),
        (1_767_323_045.123456, "1767323045123456000"),
        (1_767_323_045_123.25, "1767323045123250000"),
        ("1767323045", "1767323045000000000"),
        ("1767323045123", "1767323045123000000"),
        ("1767323045123456", "1767323045123456000"),
        ("1767323045123456789", "1767323045123456789"),
        ("1767323045.123456789", "1767323045123456789"),
        (" 1767323045123 ", "1767323045123000000"),
        ("2026-01-02T03:04:05Z", "1767323045000000000"),
        ("2026-01-02t03:04:05z", "1767323045000000000"),
        ("2026-01-02 03:04:05.5", "1767323045500000000"),
        ("2026-01-02T03:04:05,123456789Z", "1767323045123456789"),
        ("2026-01-02T03:04:05+01:00", "1767319445000000000"),
        ("2026-01-02T03:04:05.000000001+0100", "1767319445000000001"),
        ("20260102T030405Z", "1767323045000000000"),
        ("2026-01-02T03:04Z", "1767323040000000000"),
        ("2026-01-02", "1767312000000000000"),
        ("20260102", "1767312000000000000"),
        ("2026-W01-5", "1767312000000000000"),
    ]
]


@pytest.mark.parametrize(("value", "ts"), TIMES)
def test_the_time_goes_into_the_envelope_alone_when_it_has_one_of_the_usual_forms(
    value: Any, ts: str
) -> None:
    (event,) = payload_of(outlet_of(time="/t"), {"t": value, "a": 1})["events"]
    assert event == {"ts": ts, "sev": 3, "attrs": {"a": 1}}


@pytest.mark.parametrize(
    "value",
    [
        *("yesterday", "", "12", "9" * 25, "-1767323045", "1e18", "٣" * 10, "9999-01-01", "1800-01-01"),
        *(True, -1, 0, 12, 2**63, 1e300, None),
    ],
)
def test_the_time_is_that_of_receipt_and_the_field_stays_when_it_is_no_time(value: Any) -> None:
    (event,) = payload_of(outlet_of(time="/t"), {"t": value})["events"]
    assert event["ts"] == "1700000000500000000"
    assert set(event["attrs"]) == {"t"}


@given(ns=st.integers(10**17 + 10**9, 5 * 10**18 - 10**9), unit=st.sampled_from([1, 10**3, 10**6, 10**9]))
def test_a_count_is_the_same_moment_in_each_unit_as_number_and_as_text(ns: int, unit: int) -> None:
    count = ns // unit
    assert event_nanoseconds(count) == event_nanoseconds(str(count)) == count * unit


@given(value=st.one_of(st.text(), st.integers(), st.floats(), st.dates().map(str), st.datetimes().map(str)))
def test_a_time_is_none_or_within_64_bits_whatever_the_value_is(value: Any) -> None:
    found = event_nanoseconds(value)
    assert found is None or 0 <= found < 2**63


@pytest.mark.parametrize(
    ("value", "sev", "attrs"),
    [
        (0, 0, {}),
        (6, 6, {}),
        ("ERROR", 5, {}),
        ("debug", 2, {}),
        ("notice", 3, {"s": "notice"}),
        ("critical", 6, {"s": "critical"}),
        (-3, 0, {"s": -3}),
        (9, 6, {"s": 9}),
        ("odd", 3, {"s": "odd"}),
        (True, 3, {"s": True}),
        (None, 3, {"s": None}),
    ],
)
def test_the_severity_stays_an_attribute_only_when_it_says_more_than_the_grade(
    value: Any, sev: int, attrs: dict[str, Any]
) -> None:
    (event,) = payload_of(outlet_of(severity="/s"), {"s": value})["events"]
    assert (event["sev"], event["attrs"]) == (sev, attrs)


@pytest.mark.parametrize(
    ("event", "info"),
    [
        ({}, {"serverHost": "ours"}),
        ({"serverHost": "own"}, {"serverHost": "own"}),
        ({"__origServerHost": "first"}, {"serverHost": "first"}),
        ({"serverHost": "own", "__origServerHost": "first"}, {"serverHost": "own"}),
        ({"serverHost": ""}, {"serverHost": "ours"}),
        ({"serverHost": None, "__origServerHost": "first"}, {"serverHost": "ours"}),
        ({"logfile": "/var/log/x"}, {"serverHost": "ours", "logfile": "/var/log/x"}),
    ],
)
def test_host_and_file_of_an_event_are_in_the_session_info_alone_when_it_has_them(
    event: dict[str, Any], info: dict[str, Any]
) -> None:
    payload = payload_of(outlet_of(server_host="ours"), event | {"a": 1})
    assert payload["sessionInfo"] == info
    assert payload["events"][0]["attrs"] == {"a": 1}


def test_events_of_different_hosts_are_in_sessions_of_their_own_when_nothing_is_grouped() -> None:
    with DataSetServer() as server:
        settings = OutletSettings(
            name="dataset", type="dataset", options={"url": server.url, "api_key": "token"}
        )
        with Client(settings) as client:
            client.add_events(
                [{"serverHost": f"h{i % 2}", "logfile": f"f{i % 3}", "i": i} for i in range(60)]
            )
            assert client.flush(60)
    assert len(server.sessions) == 6
    for session, events in server.sessions.items():
        info = server.infos[session]
        assert [event["attrs"] for event in events] == [
            {"i": i} for i in range(60) if (info["serverHost"], info["logfile"]) == (f"h{i % 2}", f"f{i % 3}")
        ]


def test_no_thread_is_named_when_the_event_has_none() -> None:
    payload = payload_of(outlet_of(thread="/thread"), {"a": 1}, {"thread": None})
    assert "threads" not in payload
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


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("text", ["error/server/discardBuffer", "error/client/discardBuffer"])
def test_a_whole_batch_becomes_rejects_by_one_request_when_the_answer_says_discard(
    rig: Rig, status: int, text: str
) -> None:
    with DataSetServer() as server:
        reply = orjson.dumps({"status": text, "message": "cannot be processed"})
        server.answer_next(Answer(status=status, body=reply, keep=False))
        rig.append(*range(10))
        rig.drain(type="dataset", url=server.url, api_key="token")
        assert eventually(rig.settled)
        assert rig.balance()["rejected"] == 10
        rig.append(*range(10, 20))
        assert eventually(rig.settled)
        assert server.requests == 2
        assert [event["attrs"]["i"] for body in server.bodies for event in body["events"]] == [*range(10, 20)]
    assert all("cannot be processed" in reject.reason for reject in rig.rejects.list())
    assert rig.balance() == {"delivered": 10, "rejected": 10, "dropped": 0, "lag": 0}


def test_all_sessions_wait_when_a_429_says_for_how_long() -> None:
    clock = ManualClock()
    with DataSetServer() as server:
        server.answer_next(Answer(status=429, headers={"retry-after": "600"}, keep=False))
        settings = OutletSettings(
            name="dataset",
            type="dataset",
            group_by=("/k",),
            retry=QUICK,
            options={"url": server.url, "api_key": "token"},
        )
        client = Client(settings, clock=clock)
        client.add_events([{"k": 0}])
        assert eventually(client.trouble)
        with pytest.raises(BatchRejected, match="asked to pause") as refused:
            client.add_events([{"k": 1}])
        assert 0 < refused.value.retry_after_seconds <= 600
        assert server.requests == 1
        assert len(client.close(0.05)) == 1
        assert server.requests == 1


def test_all_sessions_of_an_outlet_go_on_when_the_pause_of_a_429_is_over(rig: Rig) -> None:
    with DataSetServer() as server:
        times: list[float] = []

        def note(request: Request) -> Answer | None:
            times.append(time.monotonic())
            is_first = len(times) == 1
            return Answer(status=429, headers={"retry-after": "1"}, keep=False) if is_first else None

        server.answer_always(note)
        rig.append(0, k=0)
        worker = rig.drain(type="dataset", url=server.url, api_key="token", group_by=("/k",))
        assert eventually(lambda: times)
        for k in range(1, 5):
            rig.append(k, k=k)
        assert eventually(rig.settled)
        assert len(times) == 6
        assert min(times[1:]) - times[0] > 0.9  # no earlier, whichever session it is
        assert worker.trouble() is None


def test_other_sessions_go_on_when_a_503_names_a_pause(rig: Rig) -> None:
    with DataSetServer() as server:
        server.answer_next(Answer(status=503, headers={"retry-after": "600"}, keep=False))
        rig.append(0, k=0)
        worker = rig.drain(type="dataset", url=server.url, api_key="token", group_by=("/k",))
        assert eventually(worker.trouble)
        rig.append(*range(1, 5), k=1)
        assert eventually(lambda: rig.balance()["delivered"] == 4)


def test_requests_are_full_when_small_events_wait(rig: Rig) -> None:
    text = "x" * 900
    for start in range(0, 30_000, 5_000):
        rig.log.append_wait([body(i, text=text) for i in range(start, start + 5_000)])
    with DataSetServer() as server:
        rig.drain(type="dataset", url=server.url, api_key="token")
        assert eventually(rig.settled)
        sizes = [len(orjson.dumps(sent)) for sent in server.bodies]
        events = [event["attrs"]["i"] for sent in server.bodies for event in sent["events"]]
    assert events == list(range(30_000))
    assert sum(size > 5 << 20 for size in sizes) >= len(sizes) - 2, sizes


def test_the_user_agent_ends_with_the_suffix_when_one_is_set() -> None:
    seen: list[Request] = []
    with DataSetServer() as server:
        server.answer_always(lambda request: seen.append(request))
        outlet = outlet_of(url=server.url, user_agent_suffix="otelcol/1.2;eu")
        asyncio.run(send_once(outlet))
    assert seen[0].headers["user-agent"] == f"headwater/{__version__};otelcol/1.2;eu"
    with pytest.raises(SettingsError, match="user_agent_suffix"):
        outlet_of(user_agent_suffix="two\nlines")


async def send_once(outlet: DataSetOutlet) -> None:
    await outlet.connect()
    await outlet.send(batch_of(outlet, {"a": 1}))
    await outlet.close()


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
    with pytest.raises(AssertionError, match="has 368 bytes"):
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
