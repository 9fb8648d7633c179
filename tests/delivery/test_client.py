"""The library: what is accepted, what is refused, what is handed back."""

from __future__ import annotations

import asyncio
import logging
import threading
import tracemalloc
from typing import Any

import pytest

from headwater.delivery import Client
from headwater.delivery.outlets.base import DELIVERED, Batch, Refused, Retry
from headwater.errors import BatchRejected, EventRefused, OutletUnavailable
from headwater.events import EVENT_COST, Event
from headwater.metrics import Metrics
from headwater.settings import OutletSettings, RetrySettings
from headwater.testing import OpenLineageServer
from tests.delivery.receivers import Memory, settings_of
from tests.delivery.rig import body, eventually, numbers

SLOW = RetrySettings(initial_seconds=60, max_seconds=60)


def events(*ids: int, **fields: Any) -> list[bytes]:
    return [body(i, **fields) for i in ids]


def test_events_arrive_in_order_when_added_by_a_thread() -> None:
    outlet = Memory()
    with Client(outlet.settings, outlet) as client:
        for start in range(0, 1000, 10):
            client.add_events(events(*range(start, start + 10)))
        assert client.flush(30)
        assert outlet.numbers() == list(range(1000))
        reply = client.statistics()
        assert (reply.accepted, reply.delivered, reply.waiting, reply.waiting_bytes) == (1000, 1000, 0, 0)
        assert reply.sessions == 0
    assert outlet.is_closed
    assert outlet.connects == 1


def test_events_arrive_in_order_when_added_on_the_callers_loop() -> None:
    outlet = Memory()

    async def work() -> None:
        before = threading.active_count()
        async with Client(outlet.settings, outlet) as client:
            client.add_events([{"i": 0}, {"i": 1}])
            assert threading.active_count() <= before  # fewer: threads of earlier tests may have ended
            assert await client.aflush()
            assert outlet.numbers() == [0, 1]
            client.add_events([{"i": 2}])
            assert await client.aclose() == []
        assert await client.aflush()

    asyncio.run(work())
    assert outlet.numbers() == [0, 1, 2]


def test_a_client_with_a_thread_can_be_awaited_when_a_loop_runs_elsewhere() -> None:
    outlet = Memory()
    client = Client(outlet.settings, outlet)
    client.add_events(events(1))

    async def work() -> None:
        assert await client.aflush(30)
        assert await client.aclose(30) == []

    asyncio.run(work())
    assert outlet.numbers() == [1]


def test_events_of_each_key_arrive_in_order_when_many_threads_hand_in() -> None:
    settings = settings_of(group_by=("/k",), max_in_flight=8, max_batch_events=7)
    outlet = Memory(settings, lambda batch: 0.001)
    with Client(settings, outlet) as client:

        def hand_in(k: int) -> None:
            for i in range(100):
                client.add_events([{"i": i, "k": k}])

        threads = [threading.Thread(target=hand_in, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.flush(30)
    assert all(outlet.numbers(k) == list(range(100)) for k in range(8))
    assert outlet.violations == []
    assert 1 < outlet.most_at_once <= 8
    assert len({batch.session for batch in outlet.batches}) == 8
    assert all(batch.session.startswith(client.id) for batch in outlet.batches)
    assert {batch.info["k"] for batch in outlet.batches} == set(range(8))


def test_a_batch_is_refused_whole_when_one_of_its_sessions_is_in_error() -> None:
    def act(batch: Batch) -> Exception | None:
        return OutletUnavailable("away") if batch.info["k"] == "b" else None

    settings = settings_of(group_by=("/k",))
    outlet = Memory(settings, act)
    client = Client(settings, outlet)
    client.add_events(events(1, k="b"))
    assert eventually(lambda: client.statistics().sessions_failing == 1)
    with pytest.raises(BatchRejected, match="in error: away") as refused:
        client.add_events([*events(2, k="a"), *events(3, k="b")])
    assert refused.value.retryable
    assert refused.value.retry_after_seconds > 0
    client.add_events(events(4, k="a"))
    assert eventually(lambda: outlet.numbers("a") == [4])
    assert client.statistics().batches_refused == 1
    assert "away" in (client.trouble() or "")
    outlet.act = lambda batch: None
    assert client.flush(30)
    client.add_events(events(5, k="b"))
    assert client.close(30) == []
    assert outlet.numbers("b") == [1, 5]
    assert client.trouble() is None


def test_a_session_takes_events_again_when_its_error_mode_has_run_out() -> None:
    settings = settings_of(retry=SLOW, recovery_seconds=0.05, session_budget_bytes=700)
    outlet = Memory(settings, lambda batch: OutletUnavailable("away"))
    client = Client(settings, outlet)
    client.add_events(events(1))

    def accepted() -> bool:
        try:
            client.add_events(events(2))
        except BatchRejected:
            return False
        return True

    assert eventually(lambda: client.statistics().sessions_failing == 1)
    assert eventually(accepted)
    with pytest.raises(BatchRejected, match="would hold more than 700 bytes"):
        client.add_events(events(*range(50)))
    assert [event.body for event in client.close(0.05)] == events(1, 2)


def test_a_batch_is_refused_when_a_budget_is_used_up() -> None:
    settings = settings_of(
        group_by=("/k",),
        session_budget_bytes=EVENT_COST + 100,
        budget_bytes=2 * EVENT_COST + 150,
        batch_age_seconds=60,
        max_batch_bytes=10_000,
    )
    outlet = Memory(settings)
    client = Client(settings, outlet)
    client.add_events(events(1, k="a", text="x" * 50))
    with pytest.raises(BatchRejected, match="session of outlet memory would hold more than 356") as refused:
        client.add_events(events(2, k="a", text="x" * 50))
    assert refused.value.retryable
    client.add_events(events(3, k="b", text="x" * 40))
    with pytest.raises(BatchRejected, match="client of outlet memory would hold more than 662") as refused:
        client.add_events(events(4, k="c"))
    assert refused.value.retryable
    with pytest.raises(BatchRejected, match="can never fit") as refused:
        client.add_events(events(5, k="d", text="x" * 100))
    assert not refused.value.retryable
    with pytest.raises(BatchRejected, match="can never fit") as refused:
        client.add_events([event for k in "efgh" for event in events(6, k=k, text="x" * 20)])
    assert not refused.value.retryable
    assert client.statistics().waiting == 2
    assert client.flush(30)
    client.add_events(events(4, k="c"))
    assert client.close(30) == []
    assert sorted(outlet.numbers()) == [1, 3, 4]


@pytest.mark.parametrize("text", ["", "x" * 1_000])
def test_memory_is_what_is_counted_when_events_wait(text: str) -> None:
    """The budgets are about memory: what goes around an event, and what encoders leave, counts too (G8)."""
    settings = settings_of(group_by=("/k",), batch_age_seconds=60, max_batch_events=10_000)
    client = Client(settings, Memory(settings))
    client.add_events(events(0, k=0))
    tracemalloc.start()
    try:
        for start in range(0, 4_000, 20):
            client.add_events([{"i": i, "k": i % 100, "text": text} for i in range(start, start + 20)])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reply = client.statistics()
    assert reply.waiting == 4_001
    assert held < reply.waiting_bytes + (500 << 10)  # 100 sessions and keys
    assert reply.fullest_session_bytes < reply.waiting_bytes / 50
    assert client.close(30) == []


def test_exactly_the_pending_events_are_returned_when_closed_in_time() -> None:
    def act(batch: Batch) -> Exception | float | None:
        return {"a": None, "b": OutletUnavailable("away"), "c": 60.0}[batch.info["k"]]

    settings = settings_of(group_by=("/k",), max_batch_events=2)
    outlet = Memory(settings, act)
    client = Client(settings, outlet)
    for i in range(6):
        client.add_events([event for k in "abc" for event in events(i, k=k)])
        if i == 0:
            assert eventually(lambda: len(outlet.batches) >= 3)
            break
    client.add_events(events(*range(1, 6), k="a"))
    left = client.close(0.2)
    assert outlet.numbers("a") == list(range(6))
    assert [event.body for event in left] == [body(0, k="b"), body(0, k="c")]
    assert client.close(1) == []
    assert not client.flush(1)
    with pytest.raises(BatchRejected, match="closed") as refused:
        client.add_events(events(9))
    assert not refused.value.retryable


def test_nothing_waits_for_a_fuller_batch_when_flushed() -> None:
    settings = settings_of(batch_age_seconds=60)
    outlet = Memory(settings)
    client = Client(settings, outlet)
    client.add_events(events(1, 2))
    client.add_events(events(3))
    assert client.statistics().in_flight == 0
    assert client.flush(30)
    assert outlet.numbers() == [1, 2, 3]
    assert len(outlet.batches) == 1
    assert client.flush()
    client.close()


def test_a_batch_is_sent_when_its_first_event_is_old_enough_though_others_trickle_in() -> None:
    settings = settings_of(batch_age_seconds=0.2)
    outlet = Memory(settings)
    with Client(settings, outlet) as client:
        i = 0
        while not outlet.batches:  # a timer that begins again with every event would never end this
            client.add_events(events(i))
            i += 1
            threading.Event().wait(0.01)
        assert i > 1
        assert len(outlet.batches[0].events) > 1


def test_a_batch_is_sent_when_it_is_full_though_it_is_young() -> None:
    settings = settings_of(batch_age_seconds=60, max_batch_events=3, max_batch_bytes=1000)
    outlet = Memory(settings)
    client = Client(settings, outlet)
    client.add_events(events(1, 2, 3, 4))
    assert eventually(lambda: outlet.numbers() == [1, 2, 3])
    client.add_events(events(5, text="x" * 990))
    assert eventually(lambda: outlet.numbers() == [1, 2, 3, 4, 5])
    assert client.close() == []


def test_flush_says_no_when_not_all_is_settled_in_time() -> None:
    outlet = Memory(settings_of(retry=SLOW), lambda batch: OutletUnavailable("away"))
    client = Client(outlet.settings, outlet)
    client.add_events(events(1))
    assert not client.flush(0.05)
    assert len(client.close(0)) == 1


def test_refused_events_are_reported_when_there_is_a_listener() -> None:
    reported: list[tuple[Event, str]] = []
    outlet = Memory(act=lambda batch: [Refused("bad")] + [DELIVERED] * (len(batch.events) - 1))
    with Client(
        outlet.settings, outlet, on_rejected=reported.extend, metrics=(metrics := Metrics())
    ) as client:
        client.add_events(events(1, 2, 3))
        assert client.flush(30)
        assert [(event.body, reason) for event, reason in reported] == [(body(1), "bad")]
        assert client.statistics().rejected == 1
    assert metrics.counter("delivery_events_rejected").values == {("memory",): 1}
    assert metrics.counter("delivery_events_delivered").values == {("memory",): 2}


def test_refused_events_are_an_error_line_when_there_is_no_listener(caplog: pytest.LogCaptureFixture) -> None:
    outlet = Memory(act=lambda batch: EventRefused("bad"))
    with Client(outlet.settings, outlet) as client:
        client.add_events(events(1))
        assert client.flush(30)
    assert "refused 1 events for good" in caplog.text


def test_delivery_goes_on_when_the_listener_fails(caplog: pytest.LogCaptureFixture) -> None:
    def fail(refused: object) -> None:
        raise RuntimeError("listener")

    outlet = Memory(act=lambda batch: EventRefused("bad") if batch.events[0].position == 1 else None)
    with Client(outlet.settings, outlet, on_rejected=fail) as client:
        client.add_events(events(1))
        client.add_events(events(2))
        assert client.flush(30)
        assert client.statistics().delivered + client.statistics().rejected == 2
    assert "`on_rejected` of outlet memory failed" in caplog.text


def test_a_refused_event_is_retried_without_limit_when_set_to_block() -> None:
    outlet = Memory(settings_of(on_refused="block"), lambda batch: EventRefused("bad"))
    client = Client(outlet.settings, outlet)
    client.add_events(events(1, 2))
    assert eventually(lambda: len(outlet.batches) > 5)
    outlet.act = lambda batch: None
    assert client.close(30) == []
    assert outlet.numbers() == [1, 2]


def test_only_what_failed_is_tried_again_when_results_differ() -> None:
    def act(batch: Batch) -> list[Any] | None:
        if len(batch.events) < 4:
            return None
        return [DELIVERED, Retry("busy"), DELIVERED, Retry("busy", 0.001)]

    outlet = Memory(act=act)
    with Client(outlet.settings, outlet) as client:
        client.add_events(events(1, 2, 3, 4))
        assert client.flush(30)
    assert [len(batch.events) for batch in outlet.batches] == [4, 2]
    assert outlet.numbers() == [1, 3, 2, 4]


def test_ten_thousand_keys_cost_no_threads_when_all_are_busy() -> None:
    settings = settings_of(group_by=("/k",), max_in_flight=100)
    outlet, metrics = Memory(settings), Metrics()
    with Client(settings, outlet, metrics=metrics) as client:
        before = threading.active_count()
        for i in range(2):
            client.add_events([{"i": i, "k": k} for k in range(10_000)])
        assert threading.active_count() <= before  # fewer: threads of earlier tests may have ended
        assert client.flush(60)
        assert client.statistics().sessions == 0
        assert metrics.gauge("delivery_sessions").values == {("memory",): 0}  # released as soon as idle
    assert len(outlet.received) == 20_000
    assert outlet.violations == []
    assert outlet.most_at_once <= 100


def test_leftovers_are_an_error_line_when_the_block_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Short(Client):
        def close(self, timeout_seconds: float = 0.05) -> list[Event]:
            return super().close(timeout_seconds)

        async def aclose(self, timeout_seconds: float = 0.05) -> list[Event]:
            return await super().aclose(timeout_seconds)

    outlet = Memory(settings_of(retry=SLOW), lambda batch: OutletUnavailable("away"))
    with caplog.at_level(logging.ERROR):
        with Short(outlet.settings, outlet) as client:
            client.add_events(events(1))

        async def work() -> None:
            async with Short(outlet.settings, outlet) as client:
                client.add_events(events(1))

        asyncio.run(work())
    assert caplog.text.count("closed with 1 events left") == 2


def test_an_outlet_is_made_from_the_settings_when_none_is_given(backend: OpenLineageServer) -> None:
    settings = OutletSettings(name="backend", type="openlineage", options={"url": backend.url})
    with Client(settings) as client:
        client.add_events(events(1, 2))
    assert numbers(backend.received) == [1, 2]
    assert client.flush()


def test_an_empty_batch_is_accepted_when_it_is_added() -> None:
    outlet = Memory()
    with Client(outlet.settings, outlet) as client:
        client.add_events([])
        assert client.statistics().accepted == 0
