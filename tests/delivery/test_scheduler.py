"""Sessions in one scheduler: slots, fairness, faults of outlets, connecting."""

from __future__ import annotations

import pytest

from headwater.delivery import Client
from headwater.delivery.outlets.base import DELIVERED, Batch, NotConnected
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event
from headwater.metrics import Gauge, Metrics
from headwater.settings import RetrySettings
from headwater.testing import Answer, OpenLineageServer
from tests.delivery.receivers import Memory, settings_of
from tests.delivery.rig import Rig, body, eventually, numbers


def test_connect_is_repeated_when_it_fails() -> None:
    tries: list[int] = []

    def connect() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise OutletUnavailable("not yet", retry_after_seconds=0.001)

    outlet = Memory(connect=connect)
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(1)])
        assert client.flush(30)
    assert len(tries) == 4
    assert outlet.numbers() == [1]


def test_trouble_is_reported_when_connect_keeps_failing() -> None:
    def connect() -> None:
        raise OutletUnavailable("no receiver")

    outlet = Memory(settings_of(retry=RetrySettings(initial_seconds=60)), connect=connect)
    metrics = Metrics()
    client = Client(outlet.settings, outlet, metrics=metrics)
    client.add_events([body(1)])
    assert eventually(lambda: client.trouble() == "cannot connect: no receiver")
    assert metrics.gauge("delivery_failing").values == {("memory",): 1}
    assert len(client.close(0.01)) == 1


def test_connect_is_called_again_when_send_asks_for_it() -> None:
    reply: list[Exception] = [NotConnected("gone"), NotConnected("gone")]
    outlet = Memory(act=lambda batch: reply.pop() if reply else None)
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(1)])
        assert client.flush(30)
    assert outlet.connects == 3
    assert outlet.numbers() == [1]


def test_nothing_is_lost_when_an_outlet_has_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    reply: list[Exception] = [ZeroDivisionError("oops"), KeyError("x")]
    outlet = Memory(act=lambda batch: reply.pop() if reply else None)
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(1), body(2)])
        assert client.flush(30)
    assert outlet.numbers() == [1, 2]
    assert "has a defect" in caplog.text


def test_an_outlet_that_tries_nothing_is_not_called_in_a_tight_loop_when_it_goes_on() -> None:
    outlet = Memory(settings_of(retry=RetrySettings(initial_seconds=60)), lambda batch: [])
    client = Client(outlet.settings, outlet)
    client.add_events([body(1)])
    assert eventually(lambda: client.trouble() == "the outlet tried none of the events")
    assert len(outlet.batches) == 1
    assert len(client.close(0.01)) == 1


def test_results_beyond_the_batch_are_ignored_when_an_outlet_returns_too_many() -> None:
    outlet = Memory(act=lambda batch: [DELIVERED] * 10)
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(1), body(2)])
        assert client.flush(30)
        assert client.statistics().delivered == 2


def test_the_rest_of_a_batch_is_sent_next_when_only_its_start_was_tried() -> None:
    outlet = Memory(act=lambda batch: [DELIVERED] * min(3, len(batch.events)))
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(i) for i in range(10)])
        assert client.flush(30)
    assert outlet.numbers() == list(range(10))
    assert [len(batch.events) for batch in outlet.batches] == [10, 7, 4, 1]


def test_few_requests_find_the_bad_event_when_a_batch_is_refused() -> None:
    def act(batch: Batch) -> Exception | None:
        bad = any(b'"i":700,' in event.body for event in batch.events)
        return EventRefused("one is bad") if bad else None

    settings = settings_of(max_batch_events=1024)
    outlet = Memory(settings, act)
    reasons: list[str] = []
    with Client(
        settings, outlet, on_rejected=lambda refused: reasons.extend(r for _, r in refused)
    ) as client:
        client.add_events([body(i, x=1) for i in range(1024)])
        assert client.flush(30)
    assert outlet.numbers() == [i for i in range(1024) if i != 700]
    assert reasons == ["one is bad"]
    assert len(outlet.batches) <= 2 * 10 + 1


def test_events_that_fit_no_request_are_refused_when_their_turn_comes() -> None:
    settings = settings_of(max_batch_bytes=100_000)
    outlet = Memory(settings, hard=200)
    refused: list[int] = []
    with Client(
        settings, outlet, on_rejected=lambda items: refused.extend(event.position for event, _ in items)
    ) as client:
        client.add_events([body(1), body(2, n=list(range(500))), body(3), body(4, text="x" * 500), body(5)])
        assert client.flush(30)
    assert refused == [2]
    assert outlet.numbers() == [1, 3, 4, 5]
    assert outlet.violations == []
    assert b"_trimmed" in outlet.pieces[2]


def test_an_event_that_fits_no_request_blocks_its_session_when_set_to_block() -> None:
    settings = settings_of(on_refused="block")
    outlet = Memory(settings, hard=200)
    client = Client(settings, outlet)
    client.add_events([body(1), body(2, n=list(range(500))), body(3)])
    assert eventually(lambda: "with all text cut" in (client.trouble() or ""))
    assert [event.position for event in client.close(0.01)] == [2, 3]
    assert outlet.numbers() == [1]


def test_requests_at_once_stay_within_the_limit_when_many_sessions_are_ready() -> None:
    settings = settings_of(group_by=("/k",), max_in_flight=5)
    outlet = Memory(settings, lambda batch: 0.001)
    metrics = Metrics()
    with Client(settings, outlet, metrics=metrics) as client:
        client.add_events([body(i, k=i) for i in range(100)])
        assert client.flush(30)
    assert outlet.most_at_once == 5
    assert metrics.gauge("delivery_in_flight").values == {("memory",): 0}
    assert metrics.gauge("delivery_sessions").values == {("memory",): 0}


def test_sessions_take_turns_when_one_has_far_more_to_send() -> None:
    settings = settings_of(group_by=("/k",), max_in_flight=1, max_batch_events=1)
    outlet = Memory(settings)
    with Client(settings, outlet) as client:
        client.add_events([body(i, k="busy") for i in range(100)] + [body(i, k="quiet") for i in range(3)])
        assert client.flush(30)
    order = [batch.info["k"] for batch in outlet.batches]
    assert order[:6].count("quiet") == 3


def test_healthy_sessions_keep_most_slots_when_others_hang() -> None:
    def act(batch: Batch) -> float | None:
        return 60.0 if batch.info["k"] < 0 else None

    # no error mode: on a busy machine a healthy session, too, may run into so short a timeout
    settings = settings_of(group_by=("/k",), max_in_flight=4, timeout_seconds=0.1, recovery_seconds=0.0)
    outlet = Memory(settings, act)
    client = Client(settings, outlet)
    client.add_events([body(1, k=-k) for k in range(1, 4)])
    assert eventually(lambda: client.statistics().sessions_failing == 3)
    for i in range(200):
        client.add_events([body(i, k=1)])
    assert eventually(lambda: outlet.numbers(1) == list(range(200)))
    trouble = client.trouble() or ""
    assert "3 of " in trouble
    assert "no answer within 0.1 seconds" in trouble
    assert len(client.close(0.01)) == 3


def test_a_request_under_way_is_given_up_when_closing_takes_too_long() -> None:
    outlet = Memory(act=lambda batch: 60.0)
    client = Client(outlet.settings, outlet)
    client.add_events([body(1), body(2)])
    assert eventually(lambda: client.statistics().in_flight == 1)
    client.add_events([body(3)])
    assert [event.position for event in client.close(0.05)] == [1, 2, 3]
    assert outlet.is_closed


def test_closing_goes_on_when_the_outlet_does_not_close_cleanly(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Memory):
        async def close(self) -> None:
            raise RuntimeError("stuck")

    outlet = Stuck()
    with Client(outlet.settings, outlet) as client:
        client.add_events([body(1)])
        assert client.flush(30)
    assert "did not close cleanly" in caplog.text


IMPATIENT = RetrySettings(initial_seconds=0.001, max_seconds=0.005, max_elapsed_seconds=0.1)


def test_events_become_rejects_and_the_session_goes_on_when_they_were_tried_for_too_long() -> None:
    def act(batch: Batch) -> Exception | None:
        return (
            OutletUnavailable("not these")
            if batch.info["k"] == "bad" and batch.events[0].position < 4
            else None
        )

    outlet = Memory(settings_of(group_by=("/k",), retry=IMPATIENT, recovery_seconds=0.0), act)
    rejected: list[tuple[Event, str]] = []
    with Client(outlet.settings, outlet, on_rejected=rejected.extend) as client:
        client.add_events([body(i, k="bad") for i in (1, 2, 3)])
        assert client.flush(30)
        client.add_events([body(4, k="bad"), body(5, k="good")])
        assert client.flush(30)
        reply = client.statistics()
    assert [event.position for event, _ in rejected] == [1, 2, 3]
    assert all("tried in vain for 0 seconds, the last time: not these" in reason for _, reason in rejected)
    assert sorted(outlet.numbers()) == [4, 5]
    assert (reply.accepted, reply.delivered, reply.rejected, reply.waiting) == (5, 2, 3, 0)
    assert (reply.sessions, reply.sessions_failing) == (0, 0)


def test_events_are_tried_on_when_block_forbids_to_give_up() -> None:
    outlet = Memory(settings_of(on_refused="block", retry=IMPATIENT), lambda batch: OutletUnavailable("away"))
    client = Client(outlet.settings, outlet)
    client.add_events([body(1)])
    assert eventually(lambda: len(outlet.batches) > 60)
    outlet.act = lambda batch: None
    assert client.close(30) == []
    assert outlet.numbers() == [1]


def test_no_event_is_lost_and_replay_delivers_all_when_an_outage_is_longer_than_the_limit(
    rig: Rig, backend: OpenLineageServer
) -> None:
    backend.answer_always(Answer(status=503))
    rig.append(*range(20))
    worker = rig.drain(url=backend.url, max_batch_events=5, retry=IMPATIENT)
    assert eventually(rig.settled)
    assert rig.balance() == {"delivered": 0, "rejected": 20, "dropped": 0, "lag": 0}
    assert sorted(numbers([reject.body for reject in rig.rejects.list()])) == list(range(20))
    backend.answer_always(None)
    rig.append(20)
    assert eventually(rig.settled)
    rig.rejects.request_replay(None)
    assert backend.wait_for(21)
    assert eventually(lambda: rig.balance() == {"delivered": 21, "rejected": 0, "dropped": 0, "lag": 0})
    assert worker.trouble() is None


def test_no_delivery_metric_is_read_by_a_function_when_a_worker_runs(
    rig: Rig, backend: OpenLineageServer
) -> None:
    rig.append(*range(10))
    rig.drain(url=backend.url)
    assert eventually(rig.settled)
    assert eventually(lambda: "headwater_delivery_lag_seconds" in rig.metrics.openmetrics())
    # A scrape runs in the gateway's loop: what it reads is in memory, and no call can touch the disk.
    gauges = [m for m in rig.metrics if isinstance(m, Gauge) and "_delivery_" in m.description.name]
    assert len(gauges) >= 4
    assert [m.description.name for m in gauges if any(map(callable, m._values.values()))] == []
