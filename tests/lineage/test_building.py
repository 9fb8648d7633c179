"""Events are built in time, or partially, and a builder that hangs is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.clock import ManualClock
from headwater.lineage.events.deadline import MOST_LATE, PAUSE_SECONDS, DeadlineBuilder
from headwater.lineage.runs import Run, State
from tests.lineage.made import event, run


class Scripted:
    """Does what it is told to."""

    def __init__(self, do: Callable[[], dict[str, Any]]) -> None:
        self.do = do
        self.asked = 0

    def build(self, run: Run, state: str, time: int) -> dict[str, Any]:
        self.asked += 1
        return self.do()

    def partial(self, run: Run, state: str, time: int) -> dict[str, Any]:
        return event(state, name="partial")


@pytest.fixture
def for_ever() -> Iterator[threading.Event]:
    """Something to wait for, that comes only when the test is over."""
    never = threading.Event()
    yield never
    never.set()


def fail() -> dict[str, Any]:
    raise SystemExit("no")


def text(made: dict[str, Any] | None) -> str:
    assert made is not None
    return str(made["run"]["facets"]["extractionError"]["errors"][0]["errorMessage"])


def test_the_event_is_whole_when_the_builder_answers() -> None:
    builder = DeadlineBuilder(Scripted(lambda: event(name="whole")), 10)
    made = builder.build(run(), State.COMPLETE, 1)
    builder.close()
    assert made is not None
    assert made["job"]["name"] == "whole"


def test_the_event_is_partial_when_the_builder_raises_even_system_exit() -> None:
    builder = DeadlineBuilder(Scripted(fail), 10)
    assert text(builder.build(run(), State.COMPLETE, 1)) == "SystemExit: no"
    assert text(builder.build(run(), State.COMPLETE, 1)) == "SystemExit: no", "the thread is still there"


def test_the_event_is_partial_when_the_builder_never_returns(for_ever: threading.Event) -> None:
    scripted = Scripted(lambda: {"waited": for_ever.wait()})
    builder = DeadlineBuilder(scripted, 0.05)
    assert text(builder.build(run(), State.COMPLETE, 1)).startswith("not built within")
    scripted.do = lambda: event(name="whole")
    made = builder.build(run(), State.COMPLETE, 1)
    assert made is not None
    assert made["job"]["name"] == "whole", "the next one is built by another thread"


def test_a_builder_that_hangs_again_and_again_is_not_asked_for_a_while(for_ever: threading.Event) -> None:
    clock = ManualClock()
    scripted = Scripted(lambda: {"waited": for_ever.wait()})
    builder = DeadlineBuilder(scripted, 0.05, clock=clock)
    for _ in range(MOST_LATE + 5):
        builder.build(run(), State.START, 1)
    assert scripted.asked == MOST_LATE
    assert "hang" in text(builder.build(run(), State.START, 1))
    clock.advance(PAUSE_SECONDS + 1)
    builder.build(run(), State.START, 1)
    assert scripted.asked == MOST_LATE + 1


def test_nothing_takes_longer_than_what_is_left_when_the_job_ends(for_ever: threading.Event) -> None:
    builder = DeadlineBuilder(Scripted(lambda: {"waited": for_ever.wait()}), 10_000)
    builder.hurry(0.0)
    assert text(builder.build(run(), State.ABORT, 1)).startswith("not built within")


class Broken(Scripted):
    """Cannot even make a partial event."""

    def partial(self, run: Run, state: str, time: int) -> dict[str, Any]:
        raise ValueError("nor this")


def test_there_is_no_event_when_not_even_a_partial_one_can_be_made() -> None:
    assert DeadlineBuilder(Broken(fail), 10).build(run(), State.START, 1) is None
