"""A process that uses the log is killed at each of its crash points; the next one finds all in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.log import inspect
from headwater.log.rejects import NewReject, Rejects
from headwater.log.store import Log
from tests.log.parts import adds_up, body, read_all, small

POINTS = [
    "writer.before_insert",
    "writer.before_commit",
    "writer.after_commit",
    "rotation.before_close",
    "rotation.after_close",
    "rotation.after_create",
    "collection.before_index",
    "collection.after_index",
    "collection.after_unlink",
    "cursor.before_commit",
    "cursor.after_commit",
    "reader.after_read",
    "rejects.after_insert",
]
BATCH = 7


def work(folder: Path, notes: int) -> None:
    """Append, read, finish, reject, collect, and note what was acknowledged or delivered before going on."""
    log = Log.open(folder / "log", small(partition_bytes=64 * 1024))
    rejects = Rejects(folder / "rejects.db", max_bytes=1 << 30)
    reader = log.reader("r")
    for _ in range(60):
        first = log.append_wait([body(log.end + i, 1500) for i in range(5)])
        os.write(notes, b"".join(b"acknowledged %d\n" % (first + i) for i in range(5)))
        events = reader.read(reader.position, BATCH, 1 << 20)
        os.write(notes, b"".join(b"delivered %d\n" % event.position for event in events))
        bad = [event for event in events if event.position % 10 == 0]
        rejects.add("outlet:r", [_reject(event.position, event.body) for event in bad])
        reader.finish(
            [event.position for event in events if event.position % 10], [event.position for event in bad]
        )
        log.collect()
    log.close()
    rejects.close()


def _reject(position: int, content: bytes) -> NewReject:
    return NewReject("tens are bad", content, position=position)


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_and_all_adds_up_when_the_process_is_killed(tmp_path: Path, point: str) -> None:
    notes = tmp_path / "notes"
    kills = 0
    for n in (1, 3, 2):
        command = [sys.executable, "-m", "tests.log.test_crash_points", str(tmp_path)]
        environment = os.environ | {"HEADWATER_CRASH_POINT": f"{point}:{n}"}
        code = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2]).returncode
        assert code == -signal.SIGKILL
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
    rejects = Rejects(tmp_path / "rejects.db", max_bytes=1 << 30)
    positions = [reject.position for reject in rejects.list(limit=1000)]
    rejects.close()
    assert len(positions) == len(set(positions))
    assert set(positions) >= set(range(10, found.position, 10))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    work(place, os.open(place / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
