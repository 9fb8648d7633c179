"""Isolated calls return in time or are abandoned, and late ones pause the thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from headwater.clock import ManualClock
from headwater.lineage.datasets.plan_visits import CurrentQuery, PlanVisits
from headwater.lineage.extend.builders import OpenLineageContext
from headwater.lineage.extend.isolation import PAUSE_SECONDS, Guard, IsolatedThread, NotCompleted, PerBuild
from headwater.lineage.extend.lineage_nodes import (
    InputDatasetWithFacets,
    InputDatasetWithIdentifier,
    PlanNode,
    register_node,
    unregister_node,
)
from headwater.lineage.jvm.plan import Node, Plan


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that is set only when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def fail() -> NoReturn:
    raise SystemExit("no")


def test_the_result_is_returned_when_the_call_returns() -> None:
    thread = IsolatedThread("test")
    assert thread.run(lambda: threading.current_thread().name, 10) == "test"
    thread.close()


def test_the_error_is_raised_with_its_stack_when_the_call_raises_even_system_exit() -> None:
    thread = IsolatedThread("test")
    for _ in range(2):  # the thread survives it
        with pytest.raises(NotCompleted, match="SystemExit: no") as raised:
            thread.run(fail, 10)
        assert raised.value.stack is not None
        assert not raised.value.is_late
    thread.close()


def test_the_next_call_gets_another_thread_when_one_never_returns(never: threading.Event) -> None:
    thread = IsolatedThread("test")
    with pytest.raises(NotCompleted, match="did not return within") as raised:
        thread.run(never.wait, 0.05)
    assert raised.value.is_late
    assert thread.run(lambda: 7, 10) == 7
    thread.close()


def test_no_call_is_made_for_a_while_when_calls_are_late_in_a_row(never: threading.Event) -> None:
    clock = ManualClock()
    thread = IsolatedThread("test", pause_after=3, clock=clock)
    calls: list[None] = []

    def hang() -> None:
        calls.append(None)
        never.wait()

    for _ in range(8):
        with pytest.raises(NotCompleted):
            thread.run(hang, 0.05)
    assert len(calls) == 3
    with pytest.raises(NotCompleted, match="not called"):
        thread.run(hang, 0.05)
    clock.advance(PAUSE_SECONDS + 1)
    with pytest.raises(NotCompleted):
        thread.run(hang, 0.05)
    assert len(calls) == 4


def test_a_builder_pauses_longer_each_time_when_it_is_late(never: threading.Event) -> None:
    clock = ManualClock()
    guard = Guard(0.05, clock)
    guard.start_event()
    builder = object()
    assert guard.call(builder, never.wait) is None
    guard.start_event()
    assert guard.call(builder, lambda: True) is None
    assert "is not called for 60 seconds" in guard.errors[0].text
    clock.advance(PAUSE_SECONDS + 1)
    guard.start_event()
    assert guard.errors == []
    assert guard.call(builder, never.wait) is None
    assert "is not called for 120 seconds" in guard.errors[0].text
    clock.advance(2 * PAUSE_SECONDS + 1)
    guard.start_event()
    assert guard.call(builder, lambda: True)
    assert guard.call("another name", lambda: True)


def test_an_abandoned_event_calls_no_builder_when_the_next_has_begun() -> None:
    guard = Guard(10)
    calls: list[int] = []
    first_goes_on, first_ended = threading.Event(), threading.Event()

    def build(number: int) -> None:
        guard.start_event()
        if number == 1:
            first_goes_on.wait(10)
        guard.call("builder", lambda: calls.append(number))
        if number == 1:
            first_ended.set()

    builds = IsolatedThread("builds")
    with pytest.raises(NotCompleted):
        builds.run(lambda: build(1), 0.05)
    builds.run(lambda: build(2), 10)
    first_goes_on.set()
    assert first_ended.wait(10)
    assert calls == [2]
    builds.close()


class Holder:
    """An object with state of a build."""

    value = PerBuild(lambda: 0)


def test_an_abandoned_call_keeps_its_own_state_when_the_next_call_sets_it(never: threading.Event) -> None:
    holder, thread, inner = Holder(), IsolatedThread("outer"), IsolatedThread("inner")
    seen: list[int] = []
    is_read = threading.Event()

    def first() -> None:
        holder.value = 1
        never.wait()
        seen.append(inner.run(lambda: holder.value, 10))
        is_read.set()

    def second() -> int:
        before = holder.value
        holder.value = 2
        return before

    with pytest.raises(NotCompleted):
        thread.run(first, 0.05)
    assert thread.run(second, 10) == 0
    never.set()
    assert is_read.wait(10)
    assert seen == [1]
    thread.close()
    inner.close()


class Hanging:
    """A handler whose method never returns until the test ends."""

    release = threading.Event()

    def __init__(self, node: PlanNode) -> None:
        pass

    def get_inputs(self, context: OpenLineageContext) -> list[InputDatasetWithFacets]:
        self.release.wait()
        return []


class Answering:
    """A handler that answers at once."""

    def __init__(self, node: PlanNode) -> None:
        pass

    def get_inputs(self, context: OpenLineageContext) -> list[InputDatasetWithFacets]:
        return [InputDatasetWithIdentifier("ns", "name")]


def test_other_handlers_are_called_when_one_is_late() -> None:
    plan = Plan(root=0, nodes=[Node(id=0, cls="com.acme.Hanging"), Node(id=1, cls="com.acme.Answering")])
    guard = Guard(0.1)
    visits = PlanVisits(OpenLineageContext(), guard, CurrentQuery())
    register_node("com.acme.Hanging", Hanging)
    register_node("com.acme.Answering", Answering)
    try:
        for execution in range(2):
            guard.start_event()
            visits.begin(execution, plan)
            assert [each.id for each in visits.inputs(plan.nodes)] == [("ns", "name")]
            (error,) = guard.errors
            assert error.task.endswith("Hanging")
    finally:
        Hanging.release.set()
        unregister_node("com.acme.Hanging")
        unregister_node("com.acme.Answering")
