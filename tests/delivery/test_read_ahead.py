"""The outlet worker with `group_by`: a failing session is deferred, others go on, nothing is sent twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import orjson
import psutil
import pytest

from headwater.delivery.outlet_worker import OutletWorker
from headwater.delivery.outlets.base import DELIVERED, Batch, Refused, Retry
from headwater.errors import EventRefused, OutletUnavailable
from headwater.settings import RetrySettings
from headwater.testing import DataSetServer
from tests.delivery.receivers import Memory, settings_of
from tests.delivery.rig import Rig, body, eventually

KEYED: dict[str, Any] = {"name": "one", "group_by": ("/k",)}


def fill(rig: Rig, count: int, keys: int, size: int = 100) -> None:
    """Events 0..count, spread over the keys in turn."""
    text = "x" * size
    for start in range(0, count, 10_000):
        stop = min(count, start + 10_000)
        rig.log.append_wait([body(i, k=i % keys, text=text) for i in range(start, stop)])


def drain_to(rig: Rig, outlet: Memory) -> OutletWorker:
    return rig.start(OutletWorker(outlet.settings, rig.log, rig.rejects, rig.metrics, outlet=outlet))


def dead(*keys: int) -> Any:
    def act(batch: Batch) -> Exception | None:
        return OutletUnavailable("away") if batch.info["k"] in keys else None

    return act


def assert_each_key_in_order(outlet: Memory) -> None:
    seen: dict[int, list[int]] = {}
    for event in outlet.received:
        parsed = orjson.loads(event.body)
        seen.setdefault(parsed["k"], []).append(parsed["i"])
    for key, ids in seen.items():
        assert ids == sorted(ids), f"key {key} is out of order"


def test_all_keys_arrive_in_order_when_all_are_well(rig: Rig) -> None:
    fill(rig, 5_000, 50)
    outlet = Memory(settings_of(**KEYED, max_batch_events=10))
    drain_to(rig, outlet)
    assert eventually(rig.settled)
    assert len(outlet.received) == 5_000
    assert_each_key_in_order(outlet)
    assert outlet.violations == []
    assert rig.balance()["delivered"] == 5_000


@pytest.mark.parametrize("budget", [20_000, 1 << 20])
def test_others_go_on_and_it_catches_up_when_one_key_is_dead_for_a_while(rig: Rig, budget: int) -> None:
    fill(rig, 4_000, 8)
    outlet = Memory(settings_of(**KEYED, max_batch_events=20, budget_bytes=budget), dead(3))
    drain = drain_to(rig, outlet)
    assert eventually(lambda: rig.balance()["delivered"] == 3_500)
    assert outlet.numbers(3) == []
    assert drain.trouble() == "away"
    assert drain.deferred == 1
    outlet.act = dead()
    assert eventually(rig.settled)
    assert_each_key_in_order(outlet)
    assert len(outlet.received) == 4_000  # no event came twice
    assert drain.deferred == 0
    assert drain.trouble() is None


def test_a_slow_session_holds_up_no_other_when_its_share_is_full(rig: Rig) -> None:
    fill(rig, 4_000, 4, size=200)
    settings = settings_of(**KEYED, max_batch_events=10, budget_bytes=200_000, session_budget_bytes=20_000)
    outlet = Memory(settings, lambda batch: 0.01 if batch.info["k"] == 0 else None)
    drain_to(rig, outlet)
    assert eventually(lambda: all(len(outlet.numbers(k)) == 1_000 for k in (1, 2, 3)))
    assert len(outlet.numbers(0)) < 1_000
    assert eventually(rig.settled)
    assert_each_key_in_order(outlet)
    assert len(outlet.received) == 4_000


def test_nothing_delivered_is_sent_again_when_restarted_with_dead_keys(rig: Rig) -> None:
    fill(rig, 2_000, 10)
    first = Memory(settings_of(**KEYED), dead(0, 1, 2, 3, 4))
    drain_to(rig, first)
    assert eventually(lambda: rig.balance()["delivered"] == 1_000)
    rig.restart()
    second = Memory(settings_of(**KEYED), dead(0, 1))
    drain_to(rig, second)
    assert eventually(lambda: rig.balance()["delivered"] == 1_600)
    assert {orjson.loads(event.body)["k"] for event in second.received} == {2, 3, 4}
    rig.restart()
    third = Memory(settings_of(**KEYED))
    drain_to(rig, third)
    assert eventually(rig.settled)
    everything = Counter(event.position for outlet in (first, second, third) for event in outlet.received)
    assert len(everything) == 2_000
    assert set(everything.values()) == {1}


def test_memory_stays_within_the_budget_when_half_of_many_keys_fail(rig: Rig, full: bool) -> None:
    """A restart with a large backlog; `--full` takes a million events."""
    count, keys = (1_000_000, 1_000) if full else (40_000, 400)
    fill(rig, count, keys, size=800)
    rig.restart()
    process = psutil.Process()
    before = process.memory_info().rss
    budget = 8 << 20
    settings = settings_of(
        **KEYED,
        budget_bytes=budget,
        max_in_flight=32,
        retry=RetrySettings(initial_seconds=0.2, max_seconds=1),
    )
    outlet = Memory(settings, dead(*range(0, keys, 2)))
    outlet.keeps_bodies = False
    drain = drain_to(rig, outlet)
    most_held, most_rss = 0, before

    def half() -> bool:
        nonlocal most_held, most_rss
        most_held = max(most_held, drain.held_bytes)
        most_rss = max(most_rss, process.memory_info().rss)
        return rig.balance()["delivered"] >= count // 2

    assert eventually(half, 600)
    assert most_held <= budget
    assert most_rss - before < 150 << 20
    assert outlet.deliveries == count // 2
    outlet.act = dead()
    assert eventually(rig.settled, 600)
    assert outlet.deliveries == count


def test_a_bad_event_is_found_when_its_session_is_one_of_many(rig: Rig) -> None:
    def act(batch: Batch) -> Exception | None:
        return EventRefused("bad") if any(b'"i":77,' in event.body for event in batch.events) else None

    fill(rig, 200, 4)
    outlet = Memory(settings_of(**KEYED), act)
    drain_to(rig, outlet)
    assert eventually(rig.settled)
    assert rig.balance() == {"delivered": 199, "rejected": 1, "dropped": 0, "lag": 0}
    assert [orjson.loads(reject.body)["i"] for reject in rig.rejects.list()] == [77]
    assert_each_key_in_order(outlet)


def test_a_parked_session_is_not_sent_what_it_has_when_results_came_out_of_order(rig: Rig) -> None:
    """Some of a failed batch was delivered: after the rest is read again, those are not sent again."""
    tries = 0

    def act(batch: Batch) -> list[Any] | Exception:
        nonlocal tries
        tries += 1
        if tries == 1:
            return [DELIVERED if i % 2 else Retry("busy") for i in range(len(batch.events))]
        return OutletUnavailable("away") if tries < 6 else [DELIVERED] * len(batch.events)

    fill(rig, 300, 1, size=1_000)
    outlet = Memory(settings_of(**KEYED), act)
    drain_to(rig, outlet)
    assert eventually(rig.settled)
    assert len(outlet.received) == 300
    assert len({event.position for event in outlet.received}) == 300


def test_a_replayed_reject_is_taken_up_again_when_its_session_was_parked(rig: Rig) -> None:
    fill(rig, 100, 1, size=1_000)
    outlet = Memory(
        settings_of(**KEYED),
        lambda batch: [Refused("bad") if b'"i":99,' in event.body else DELIVERED for event in batch.events],
    )
    drain_to(rig, outlet)
    assert eventually(lambda: rig.balance()["rejected"] == 1)
    outlet.act = dead(0)
    fill(rig, 100, 1, size=1_000)
    rig.rejects.request_replay(None)
    assert eventually(lambda: rig.gauge("delivery_failing", "one") == 1)
    outlet.act = dead()
    assert eventually(lambda: rig.balance() == {"delivered": 200, "rejected": 0, "dropped": 0, "lag": 0})
    assert rig.rejects.list() == []


def test_the_fields_of_the_key_are_session_info_when_sent_to_dataset(rig: Rig) -> None:
    with DataSetServer(latency_seconds=0.002, queues=4) as server:
        fill(rig, 600, 6)
        server.restart_all(0.05)
        rig.drain(
            type="dataset",
            url=server.url,
            api_key="token",
            group_by=("/k",),
            max_batch_events=25,
            session_info={"team": "data"},
        )
        assert eventually(rig.settled)
        assert server.events == 600
        assert len(server.sessions) == 6
        for session, events in server.sessions.items():
            key = server.infos[session]["k"]
            assert server.infos[session]["team"] == "data"
            assert [event["attrs"]["i"] for event in events] == list(range(key, 600, 6))
            assert all("k" not in event["attrs"] for event in events)
    assert server.violations == []


def refuse_rejects(rig: Rig, reason: str | None) -> None:
    """From now on, rejects cannot be stored, or, without a reason, they can."""
    connection = apsw.Connection(str(rig.folder / "rejects.db"))
    connection.set_busy_timeout(30_000)
    connection.execute("DROP TRIGGER IF EXISTS full")
    if reason is not None:
        connection.execute(
            f"CREATE TRIGGER full BEFORE INSERT ON rejects BEGIN SELECT RAISE(ABORT, '{reason}'); END"
        )
    connection.close()


def test_events_go_on_when_the_disk_refuses_the_rejects_for_a_while(rig: Rig, tmp_path: Path) -> None:
    """A reject that cannot be stored keeps its event unfinished; it is stored when the disk is back (G3)."""
    refuse = True

    def act(batch: Batch) -> list[Any]:
        return [Refused("bad") if refuse else DELIVERED for _ in batch.events]

    refuse_rejects(rig, "no")
    rig.append(1)
    outlet = Memory(settings_of(name="one"), act)
    drain = drain_to(rig, outlet)
    assert eventually(lambda: drain.trouble() is not None)
    assert rig.balance() == {"delivered": 0, "rejected": 0, "dropped": 0, "lag": 1}
    refuse_rejects(rig, None)
    assert eventually(lambda: rig.balance() == {"delivered": 0, "rejected": 1, "dropped": 0, "lag": 0})
    assert eventually(lambda: drain.trouble() is None)
    assert len(rig.rejects.list()) == 1


def test_events_are_sent_again_when_the_rejects_cannot_be_stored_at_the_end(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_rejects(rig, "no")
    rig.append(1, 2)
    outlet = Memory(settings_of(name="one"), lambda batch: [DELIVERED, Refused("bad")])
    drain = drain_to(rig, outlet)
    assert eventually(lambda: drain.trouble() is not None)
    refuse_rejects(rig, "still no")
    drain.close(1.0)
    assert "will be sent again" in caplog.text
    assert rig.balance()["lag"] == 2
    refuse_rejects(rig, None)
    drain_to(rig, Memory(settings_of(name="one")))
    assert eventually(rig.settled)
    assert rig.balance()["delivered"] == 2
