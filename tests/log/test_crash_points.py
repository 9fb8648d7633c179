"""A process that uses the log is killed at each of its crash points; the next one finds all in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.system.crash_points import CRASH_POINTS
from tests.log.crash_process import BATCH
from tests.log.parts import adds_up, body, read_all, small
from tests.parts.forks import Forks

# those of the log itself; sending, tables and the pipeline have theirs
PARTS = ("writer.", "rotation.", "collection.", "cursor.", "reader.after_read", "rejects.")
POINTS = [point for point in CRASH_POINTS if point.startswith(PARTS)]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.log.crash_process") as forks:
        yield forks


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_and_all_adds_up_when_the_process_is_killed(
    tmp_path: Path, forks: Forks, point: str
) -> None:
    notes = tmp_path / "notes"
    kills = 0
    for n in (1, 3, 2):
        assert forks.run(str(tmp_path), crash_point=f"{point}:{n}") == -signal.SIGKILL
        kills += 1
    lines = [line.split() for line in notes.read_text().splitlines()]
    acknowledged = {int(position) for kind, position in lines if kind == "acknowledged"}
    delivered = [int(position) for kind, position in lines if kind == "delivered"]

    log = Log.open(tmp_path / "log", small())
    left = read_all(log.reader("r"))
    assert [event.body for event in left] == [body(event.position, 1500) for event in left]
    assert [event.position for event in left] == list(range(log.reader("r").position, log.end))
    assert acknowledged <= set(delivered) | {event.position for event in left}  # G1
    assert len(delivered) - len(set(delivered)) <= kills * BATCH  # G4
    assert list(dict.fromkeys(delivered)) == sorted(set(delivered))  # G2
    adds_up(log)
    found = log.stat().readers[0]
    assert (found.dropped_age, found.dropped_bytes, found.dropped_damage) == (0, 0, 0)
    assert log.stat().damaged == []
    log.close()
    assert inspect.verify(tmp_path / "log") == []
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=1 << 30)
    positions = [reject.position for reject in rejects.list(limit=1000)]
    rejects.close()
    assert len(positions) == len(set(positions))
    assert set(positions) >= set(range(10, found.position, 10))
