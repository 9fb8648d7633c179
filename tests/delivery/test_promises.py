"""The promises of delivery, held against made-up keys, sizes, faults and restarts."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import psutil
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.delivery import Client
from headwater.delivery.outlet_worker import OutletWorker
from headwater.delivery.outlets.base import DELIVERED, Batch, NotConnected, Refused, Results, Retry
from headwater.errors import BatchRejected, EventRefused, OutletUnavailable
from headwater.events import Event
from headwater.settings import LogSettings
from tests.delivery.receivers import QUICK, Memory, settings_of
from tests.delivery.rig import Rig, eventually

EXAMPLES = 25

# A fault strikes one send. "busy" is about the last event of a batch: about an earlier one, the receiver
# itself would have changed the order.
FAULTS = ("none", "none", "away", "wish", "pause", "busy", "short", "gone", "defect", "late")


def faulty(chance: random.Random, bad: set[int]) -> Callable[[Batch], Any]:
    """A receiver that has faults at random, and always refuses the bad events, by event or as a batch."""

    def act(batch: Batch) -> Results | Exception | float | None:
        ids = [orjson.loads(event.body)["i"] for event in batch.events]
        fault = chance.choice(FAULTS)
        if fault == "away":
            return OutletUnavailable("away")
        if fault == "wish":
            return OutletUnavailable("later", retry_after_seconds=0.001)
        if fault == "pause":
            return OutletUnavailable("all wait", retry_after_seconds=0.002, pauses_all=True)
        if fault == "gone":
            return NotConnected("gone")
        if fault == "defect":
            return RuntimeError("defect")
        if any(i in bad for i in ids):
            if chance.random() < 0.5:
                return EventRefused("one of them is bad")
            return [Refused("bad") if i in bad else DELIVERED for i in ids]
        if fault == "late":
            return 0.0005
        if fault == "short":
            return [DELIVERED] * (len(ids) // 2) if len(ids) > 1 else None
        if fault == "busy":
            return [*[DELIVERED] * (len(ids) - 1), Retry("busy")]
        return None

    return act


plans = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "keys": st.integers(1, 12),
        "events": st.integers(1, 150),
        "largest": st.sampled_from([10, 300, 1_500]),
        "bad": st.sets(st.integers(0, 150), max_size=4),
        "max_batch_events": st.integers(1, 40),
        "max_batch_bytes": st.integers(50, 2_000),
        "hard": st.sampled_from([None, 400]),
        "max_in_flight": st.integers(1, 6),
        "batch_age_seconds": st.sampled_from([0.0, 0.002]),
        "session_budget_bytes": st.integers(3_000, 20_000),
        "budget_bytes": st.integers(3_000, 60_000),
        "max_elapsed_seconds": st.sampled_from([0.0, 0.0, 0.01]),
        "restarts": st.integers(0, 3),
    }
)


def outlet_for(plan: dict[str, Any], chance: random.Random) -> Memory:
    names = (
        "max_batch_events",
        "max_batch_bytes",
        "max_in_flight",
        "batch_age_seconds",
        "session_budget_bytes",
        "budget_bytes",
    )
    retry = msgspec.structs.replace(QUICK, max_elapsed_seconds=plan["max_elapsed_seconds"])
    limits = {name: plan[name] for name in names}
    own = settings_of(name="one", group_by=("/k",), recovery_seconds=0.0, retry=retry, **limits)
    return Memory(own, faulty(chance, plan["bad"]), hard=plan["hard"])


def made(plan: dict[str, Any], chance: random.Random) -> list[bytes]:
    return [
        orjson.dumps(
            {"i": i, "k": chance.randrange(plan["keys"]), "text": "x" * chance.randrange(plan["largest"])}
        )
        for i in range(plan["events"])
    ]


def assert_order(received: list[Event]) -> None:
    """Per key, events arrive in order; one that came again came after its first time only."""
    last: dict[int, int] = {}
    seen: set[int] = set()
    for event in received:
        parsed = orjson.loads(event.body)
        if event.position not in seen:
            assert parsed["i"] > last.get(parsed["k"], -1)
            last[parsed["k"]] = parsed["i"]
        seen.add(event.position)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans)
def test_every_accepted_event_is_accounted_for_when_the_client_meets_faults(plan: dict[str, Any]) -> None:
    chance = random.Random(plan["seed"])
    outlet = outlet_for(plan, chance)
    rejected: list[Event] = []
    client = Client(outlet.settings, outlet, on_rejected=lambda items: rejected.extend(e for e, _ in items))
    accepted: list[bytes] = []
    bodies = made(plan, chance)
    while bodies:
        batch, bodies = bodies[:7], bodies[7:]
        for _ in range(1_000):
            try:
                client.add_events(batch)
                accepted += batch
                break
            except BatchRejected as error:
                if not error.retryable:
                    break  # this batch is larger than a budget
                time.sleep(0.001)
        reply = client.statistics()
        assert reply.waiting_bytes <= plan["budget_bytes"]
        assert reply.fullest_session_bytes <= plan["session_budget_bytes"]
        assert reply.accepted == reply.delivered + reply.rejected + reply.waiting
    left = client.close(chance.choice([0.0, 0.01, 30.0]))
    assert outlet.violations == []
    assert outlet.most_at_once <= plan["max_in_flight"]
    everything = [*outlet.received, *rejected, *left]
    assert sorted({event.body for event in everything}) == sorted(accepted)
    assert len(everything) - len({event.position for event in everything}) <= len(left)
    assert left == sorted(left)
    assert_order(outlet.received)
    assert not {orjson.loads(event.body)["i"] for event in outlet.received} & plan["bad"]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans)
def test_every_event_is_delivered_in_its_keys_order_when_the_drain_meets_faults_and_restarts(
    plan: dict[str, Any],
) -> None:
    chance = random.Random(plan["seed"])
    outlets: list[Memory] = []
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder), LogSettings()) as rig:
        bodies = made(plan, chance)
        rig.log.append_wait(bodies[: len(bodies) // 2])
        for _ in range(plan["restarts"]):
            outlets.append(outlet_for(plan, chance))
            rig.start(
                OutletWorker(outlets[-1].settings, rig.log, rig.rejects, rig.metrics, outlet=outlets[-1])
            )
            time.sleep(chance.random() * 0.01)
            rig.restart()
        outlets.append(outlet_for(plan, chance))
        rig.start(OutletWorker(outlets[-1].settings, rig.log, rig.rejects, rig.metrics, outlet=outlets[-1]))
        if bodies[len(bodies) // 2 :]:
            rig.log.append_wait(bodies[len(bodies) // 2 :])
        assert eventually(rig.settled)
        received = [event for outlet in outlets for event in outlet.received]
        rejected = [reject.body for reject in rig.rejects.list()]
        balance = rig.balance()
        assert balance["delivered"] + balance["rejected"] == len(bodies)
        assert len(rejected) == balance["rejected"]
    assert all(outlet.violations == [] for outlet in outlets)
    assert {event.body for event in received} | set(rejected) == set(bodies)
    assert len(received) == len({event.position for event in received})  # restarts in peace repeat nothing
    assert_order(received)


def test_memory_grows_by_the_budget_only_when_one_session_recovers_and_the_other_does_not(
    full: bool,
) -> None:
    """A fails and recovers, B fails on, input for both goes on at full speed."""
    recovered, b_is_well = threading.Event(), threading.Event()

    def act(batch: Batch) -> Exception | None:
        well = recovered if batch.info["session"] == "A" else b_is_well
        return None if well.is_set() else OutletUnavailable("503")

    budget = 4 << 20
    own = settings_of(
        group_by=("/session",), recovery_seconds=0.05, session_budget_bytes=budget, budget_bytes=2 * budget
    )
    outlet = Memory(own, act)
    outlet.keeps_bodies = False
    client = Client(own, outlet)
    text = "x" * 1_000
    accepted = {"A": 0, "B": 0}
    refused = 0

    def add(session: str) -> None:
        nonlocal refused
        try:
            client.add_events([{"session": session, "i": i, "text": text} for i in range(20)])
            accepted[session] += 20
        except BatchRejected:
            refused += 1

    add("A")
    add("B")
    assert eventually(lambda: client.statistics().sessions_failing == 2)
    recovered.set()
    assert eventually(lambda: client.statistics().sessions_failing == 1)
    process = psutil.Process()
    before = process.memory_info().rss
    most, until = 0, time.monotonic() + (60.0 if full else 1.5)
    while time.monotonic() < until:
        add("A")
        add("B")
        reply = client.statistics()
        assert reply.waiting_bytes <= 2 * budget
        assert reply.fullest_session_bytes <= budget
        most = max(most, process.memory_info().rss)
    assert refused > 0
    assert accepted["A"] > accepted["B"] > 20
    assert most - before < 2 * (2 * budget)  # the budget, and as much for what is handed over meanwhile
    b_is_well.set()
    assert client.close(60) == []
    assert outlet.deliveries == accepted["A"] + accepted["B"]
