"""The log against a model of plain lists: any appends, reads, rotations, collections and crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.clock import ManualClock
from headwater.log.queue.log import Log
from headwater.settings import LogSettings
from tests.log.parts import body, copy_of, read_all

HOUR = 3600
RETENTION_HOURS = 20
SETTINGS = LogSettings(
    partition_bytes=160 * 1024,
    retention_hours=RETENTION_HOURS,
    retention_bytes=640 * 1024,
    max_commit_bytes=64 * 1024,
    collect_seconds=3600,
)
SIZES = st.sampled_from((1, 200, 6_000, 40_000))


class Expected:
    """What a reader should have: where it began, and the outcome of each position."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.outcomes: dict[int, str] = {}
        self.held: set[int] = set()  # in the memory of the reader's owner


class LogMachine(RuleBasedStateMachine):
    names = Bundle("names")

    @initialize()
    def begin(self) -> None:
        self.place = Path(
            tempfile.mkdtemp(prefix="model-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        self.copies = 0
        self.clock = ManualClock()
        self.log = self.open(self.place / "0")
        self.events: list[bytes] = []  # position 1 is the first
        self.readers: dict[str, Expected] = {}
        self.reads: dict[str, int] = {}

    def open(self, folder: Path) -> Log:
        return Log.open(folder, SETTINGS, clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.place)

    # --- what may happen

    @rule(sizes=st.lists(SIZES, min_size=0, max_size=6))
    def append(self, sizes: list[int]) -> None:
        bodies = [body(len(self.events) + i + 1, size) for i, size in enumerate(sizes)]
        assert self.log.append_wait(bodies) == len(self.events) + 1
        self.events += bodies

    @rule(target=names, name=st.sampled_from("abc"), start=st.sampled_from(("earliest", "latest")))
    def begin_reader(self, name: str, start: str) -> str:
        first = self.log.stat().first
        position = self.log.reader(name, start).position
        if name not in self.readers:
            assert position == (len(self.events) + 1 if start == "latest" else first)
            self.readers[name] = Expected(position)
        return name

    @rule(name=consumes(names))
    def forget(self, name: str) -> None:
        self.log.forget(name)
        self.readers.pop(name, None)

    @rule(
        target=names,
        name=consumes(names),
        events=st.integers(1, 30),
        size=st.integers(1, 100_000),
        chosen=st.randoms(use_true_random=False),
    )
    def finish(self, name: str, events: int, size: int, chosen: st.random_module) -> str:  # type: ignore[valid-type]
        if (expected := self.readers.get(name)) is None:
            return name
        reader = self.log.reader(name)
        batch = reader.read(reader.position, events, size)
        assert len(batch) <= events
        assert len(batch) <= 1 or sum(len(event.body) for event in batch) <= size
        oldest = max(expected.base, self.log.stat().first)
        unfinished = [n for n in range(oldest, len(self.events) + 1) if n not in expected.outcomes]
        assert [event.position for event in batch] == unfinished[: len(batch)]
        assert bool(batch) == bool(unfinished)
        some = [event.position for event in batch if chosen.random() < 0.7]  # type: ignore[attr-defined]
        bad = [position for position in some if position % 7 == 0]
        reader.finish([position for position in some if position % 7], bad)
        reader.finish(some)  # a second time counts nothing
        self.settle(expected, some)
        return name

    def settle(self, expected: Expected, positions: list[int]) -> None:
        for position in positions:
            expected.outcomes[position] = "delivered" if position % 7 else "rejected"
            expected.held.discard(position)

    @rule(target=names, name=consumes(names), skipped=st.integers(0, 40), events=st.integers(1, 40))
    def take(self, name: str, skipped: int, events: int) -> str:
        """As an outlet reads ahead: from now on these are in its memory."""
        if expected := self.readers.get(name):
            reader = self.log.reader(name)
            found = reader.take(reader.position + skipped, events, 1 << 20)
            expected.held |= {event.position for event in found}
        return name

    @rule(target=names, name=consumes(names), chosen=st.randoms(use_true_random=False))
    def finish_held(self, name: str, chosen: st.random_module) -> str:  # type: ignore[valid-type]
        if expected := self.readers.get(name):
            some = [each for each in sorted(expected.held) if chosen.random() < 0.5]  # type: ignore[attr-defined]
            self.log.reader(name).finish([n for n in some if n % 7], [n for n in some if not n % 7])
            self.settle(expected, some)
        return name

    @rule(target=names, name=consumes(names), chosen=st.randoms(use_true_random=False))
    def release(self, name: str, chosen: st.random_module) -> str:  # type: ignore[valid-type]
        """As an outlet forgets what it will read again."""
        if expected := self.readers.get(name):
            some = {each for each in expected.held if chosen.random() < 0.5}  # type: ignore[attr-defined]
            self.log.reader(name).release(some)
            expected.held -= some
        return name

    @rule(hours=st.sampled_from((0.1, 1.1, RETENTION_HOURS + 2.0)))
    def time_passes(self, hours: float) -> None:
        self.clock.advance(hours * HOUR)

    @rule(hours=st.sampled_from((-50.0, 50.0)))
    def clock_jumps(self, hours: float) -> None:
        self.clock.jump(hours * HOUR)

    @rule()
    def collect(self) -> None:
        self.log.collect()

    @precondition(lambda self: self.copies < 12)
    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.close()
            self.log = self.open(self.log.folder)
        else:
            self.copies += 1
            crashed = copy_of(self.log.folder, self.place / str(self.copies))
            self.log.close()
            self.log = self.open(crashed)
        for expected in self.readers.values():
            expected.held.clear()

    # --- what must always hold

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "log"):
            return
        stat = self.log.stat()
        assert stat.end == self.log.end == len(self.events) + 1
        assert stat.damaged == []
        assert {found.name for found in stat.readers} == set(self.readers)
        for found in stat.readers:
            expected = self.readers[found.name]
            gone = range(expected.base, stat.first)
            dropped = [n for n in gone if n not in expected.outcomes and n not in expected.held]
            for position in dropped:
                expected.outcomes[position] = "dropped"
            outcomes = list(expected.outcomes.values())
            assert found.delivered == outcomes.count("delivered")
            assert found.rejected == outcomes.count("rejected")
            assert found.dropped_age + found.dropped_bytes == outcomes.count("dropped")
            assert found.dropped_damage == 0
            assert found.appended == len(self.events) + 1 - expected.base
            assert found.lag_events == found.appended - len(outcomes)

    @invariant()
    def everything_kept_is_readable(self) -> None:
        if not hasattr(self, "log"):
            return
        for name, expected in self.readers.items():
            found = [(event.position, event.body) for event in read_all(self.log.reader(name), max_events=7)]
            assert found == [
                (n, self.events[n - 1])
                for n in range(max(expected.base, self.log.stat().first), len(self.events) + 1)
                if n not in expected.outcomes
            ]


COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_the_log_does_what_the_model_does_when_anything_happens() -> None:
    short = settings(max_examples=20, stateful_step_count=30, derandomize=True, **COMMON)
    run_state_machine_as_test(LogMachine, settings=short)


@pytest.mark.long
def test_the_log_does_what_the_model_does_when_much_happens(full: bool) -> None:
    examples, steps = (2_000, 60) if full else (100, 40)
    run_state_machine_as_test(
        LogMachine, settings=settings(max_examples=examples, stateful_step_count=steps, **COMMON)
    )
