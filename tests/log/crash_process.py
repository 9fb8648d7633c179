"""A process that uses the log and may be killed at a crash point."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from tests.log.parts import body, small

BATCH = 7


def main(place: str) -> None:
    """Append, read, finish, reject, collect, and note what was acknowledged or delivered before going on."""
    folder = Path(place)
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    log = Log.open(folder / "log", small(partition_bytes=64 * 1024))
    rejects = RejectStore(folder / "rejects.db", max_bytes=1 << 30)
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
