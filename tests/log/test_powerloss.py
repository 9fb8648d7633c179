"""A power cut at any write: nothing acknowledged is lost (G1), nothing is counted as damaged (G3).

A sample of the sync boundaries and of the rest is tried; `--full` tries every prefix of the recorded
operations with every fate.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.log.queue.log import Log
from tests.log.parts import adds_up, read_all, small
from tests.parts.powerloss import Fate, Operation, Platter, RecordingDisk

SETTINGS = small(partition_bytes=128 * 1024, retention_bytes=16 << 20, max_commit_bytes=16 * 1024)
FATES: tuple[Fate, ...] = ("kept", "dropped", "torn")
SAMPLE = 130


class Recording:
    """A workload's operations, and at which of them each event was acknowledged, by position."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.disk = RecordingDisk(f"recording-{seed}")
        self.acknowledged: list[tuple[int, bytes]] = []  # number of operations, body; by position from 1
        self._random = random.Random(seed)

    def run(self, rounds: int) -> None:
        log = Log.open(self.folder, SETTINGS, vfs=self.disk.name)
        reader = log.reader("steady")
        log.reader("left behind")
        producers = [
            threading.Thread(target=self._produce, args=(log, number, rounds)) for number in range(3)
        ]
        for producer in producers:
            producer.start()
        position = 1
        while any(producer.is_alive() for producer in producers) or position < log.end:
            events = reader.read(position, 40, 20_000)
            if not events:
                continue
            position = events[-1].position + 1
            self._random.shuffle(events)
            for start in range(0, len(events), 7):
                reader.finish([event.position for event in events[start : start + 7]])
            if self._random.random() < 0.2:
                log.collect()
            if position > 150:
                log.forget("left behind")
        for producer in producers:
            producer.join()
        log.collect()
        log.close()
        self.disk.close()

    def _produce(self, log: Log, number: int, rounds: int) -> None:
        chance = random.Random(number)
        answered = threading.Semaphore(4)
        for turn in range(rounds):
            bodies = [
                b"%d/%d/%d:" % (number, turn, i) + chance.randbytes(chance.choice((50, 900, 5000)))
                for i in range(chance.randint(1, 4))
            ]
            answered.acquire()
            log.append(bodies, self._answer, (bodies, answered))

    def _answer(self, tokens: list[Any], error: HeadwaterError | None) -> None:
        assert error is None
        for bodies, answered in tokens:
            self.acknowledged += [(len(self.disk.operations), body) for body in bodies]
            answered.release()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("recorded") / "log", 1)
    made.run(60)
    return made


def cuts(operations: list[Operation], full: bool) -> list[int]:
    """After how many operations the power fails."""
    if full:
        return list(range(len(operations) + 1))
    boundaries = {i for i, operation in enumerate(operations) if operation.kind.startswith("sync")}
    edges = sorted(boundaries | {i + 1 for i in boundaries})
    chance = random.Random(5)
    return sorted(
        {*chance.sample(edges, min(SAMPLE, len(edges))), *chance.sample(range(len(operations)), SAMPLE)}
    )


def after(recording: Recording, folder: Path, full: bool) -> Iterator[tuple[int, Fate, Path]]:
    """The folder as it is found after each power cut."""
    platter, done = Platter(), 0
    for number, cut in enumerate(cuts(recording.disk.operations, full)):
        for operation in recording.disk.operations[done:cut]:
            platter.apply(operation)
        done = cut
        for fate in FATES if full else FATES[number % 3 : number % 3 + 1]:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                for name, content in platter.after_power_loss(fate, random.Random(cut)).items():
                    Path(place, Path(name).name).write_bytes(content)
                yield cut, fate, Path(place)


def check(recording: Recording, cut: int, folder: Path) -> None:
    obligations = {
        position: body for position, (count, body) in enumerate(recording.acknowledged, 1) if count <= cut
    }
    written = {position: body for position, (_, body) in enumerate(recording.acknowledged, 1)}
    log = Log.open(folder, SETTINGS)
    try:
        stat = log.stat()
        assert stat.damaged == []
        found = {event.position: event.body for event in read_all(log.reader("afterwards"))}
        assert list(found) == sorted(found)
        assert {position: written[position] for position in found} == found
        missing = obligations.keys() - found.keys()
        assert all(position < stat.first for position in missing), "an acknowledged event is lost"
        for reader in stat.readers:
            # what was collected had been passed, and the cursor that says so is still there
            assert reader.position >= stat.first
        assert missing == set() or stat.readers
        adds_up(log)
        assert all(reader.dropped_damage == 0 for reader in log.stat().readers)
        new = log.append_wait([b"new"])
        assert new == max(found, default=stat.end - 1) + 1
        assert [event.body for event in read_all(log.reader("afterwards"), new)] == [b"new"]
    finally:
        log.close()


def test_nothing_acknowledged_is_lost_when_the_power_fails_at_any_write(
    recording: Recording, record_property: Callable[[str, object], None], full: bool
) -> None:
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    tried = 0
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for cut, fate, found in after(recording, Path(folder), full):
            try:
                check(recording, cut, found)
            except BaseException as error:
                error.add_note(f"after operation {cut} of {len(recording.disk.operations)}, {fate}")
                raise
            tried += 1
    record_property("power cuts", tried)
    kinds = {operation.kind for operation in recording.disk.operations}
    assert kinds == {"write", "truncate", "sync", "delete", "sync folder"}
    assert tried >= SAMPLE
    print(f"{tried} power cuts over {len(recording.disk.operations)} operations")
