from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.delivery.loop_thread import LoopThreads
from headwater.delivery.outlet_worker import OutletWorker
from headwater.delivery.outlets.base import DELIVERED, Batch, NoOptions, Outlet, Results
from headwater.delivery.read_ahead import ReadAhead
from headwater.settings import OutletSettings
from tests.delivery.rig import QUICK, Rig, eventually, numbers

EVENTS = 50


class Receiver(Outlet):
    """Keeps what it receives; it answers while `may_answer` is set."""

    shares_loop = True

    def __init__(self, name: str) -> None:
        super().__init__(NoOptions(), OutletSettings(name=name, type="test", retry=QUICK))
        self.received: list[bytes] = []
        self.threads: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def send(self, batch: Batch) -> Results:
        self.threads.add(threading.get_ident())
        await self.may_answer.wait()
        self.received += batch.pieces
        return [DELIVERED] * len(batch.events)


class Blocker(Receiver):
    """Blocks its loop, as a library without coroutines does."""

    shares_loop = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.released = threading.Event()

    async def send(self, batch: Batch) -> Results:
        self.released.wait()
        return await super().send(batch)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def start(rig: Rig, loops: LoopThreads, *outlets: Outlet) -> list[OutletWorker]:
    return [
        rig.start(
            OutletWorker(
                outlet.settings,
                rig.log,
                rig.rejects,
                rig.metrics,
                outlet=outlet,
                loops=loops,
                pause_seconds=0.05,
            )
        )
        for outlet in outlets
    ]


def test_a_few_loops_serve_all_outlets_when_there_are_many(rig: Rig) -> None:
    loops = LoopThreads(2)
    before = {*threading.enumerate()}
    outlets = [Receiver(f"o{i}") for i in range(40)]
    start(rig, loops, *outlets)
    rig.append(*range(EVENTS))
    assert eventually(lambda: all(len(outlet.received) == EVENTS for outlet in outlets))
    assert all(numbers(outlet.received) == list(range(EVENTS)) for outlet in outlets)
    assert len({thread for outlet in outlets for thread in outlet.threads}) == 2
    assert len({*threading.enumerate()} - before) == 2
    rig.close()
    loops.close(10)
    assert {*threading.enumerate()} <= before
    rig.open()


def test_a_receiver_that_does_not_answer_slows_no_other_when_they_share_a_loop(rig: Rig) -> None:
    loops = LoopThreads(1)
    slow, quick = Receiver("slow"), Receiver("quick")
    slow.may_answer.clear()
    workers = start(rig, loops, slow, quick)
    for i in range(EVENTS):
        rig.append(i)
    assert eventually(lambda: len(quick.received) == EVENTS)
    assert slow.received == []
    assert slow.threads == quick.threads
    workers[0]._loop.call(slow.may_answer.set)
    assert eventually(lambda: len(slow.received) == EVENTS)
    assert numbers(slow.received) == list(range(EVENTS))


def test_an_outlet_that_blocks_its_loop_slows_no_other_when_it_does_not_say_that_it_shares(rig: Rig) -> None:
    loops = LoopThreads(1)
    blocker, quick = Blocker("blocker"), Receiver("quick")
    start(rig, loops, blocker, quick)
    rig.append(*range(EVENTS))
    assert eventually(lambda: len(quick.received) == EVENTS)
    assert blocker.received == []
    blocker.released.set()
    assert eventually(lambda: len(blocker.received) == EVENTS)


def test_an_outlet_is_tried_again_and_says_why_when_it_cannot_begin(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_begin = threading.Event()

    def fails(*arguments: Any) -> ReadAhead:
        if not may_begin.is_set():
            raise OSError(24, "Too many open files")
        return ReadAhead(*arguments)

    monkeypatch.setattr("headwater.delivery.outlet_worker.ReadAhead", fails)
    outlet = Receiver("one")
    rig.append(1)
    (worker,) = start(rig, LoopThreads(), outlet)
    assert eventually(lambda: worker.trouble() == "[Errno 24] Too many open files")
    assert "Outlet one waits" in caplog.text
    may_begin.set()
    assert eventually(lambda: len(outlet.received) == 1)
    assert eventually(lambda: worker.trouble() is None)


def test_it_ends_at_once_when_it_is_stopped_before_it_could_begin(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("headwater.delivery.outlet_worker.ReadAhead", fails)
    (worker,) = start(rig, LoopThreads(), Receiver("one"))
    assert eventually(lambda: worker.trouble() is not None)
    assert worker.is_running
    worker.close(5.0)
    assert not worker.is_running


def test_closing_does_nothing_when_it_was_not_started(rig: Rig) -> None:
    outlet = Receiver("one")
    worker = OutletWorker(outlet.settings, rig.log, rig.rejects, rig.metrics, outlet=outlet)
    assert not worker.is_running
    worker.close(1.0)
    loops = LoopThreads()
    loops.assign(outlet)
    loops.close(1.0)
