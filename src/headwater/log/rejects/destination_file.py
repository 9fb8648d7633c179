"""Rejects of destinations, one file each, in the form of seed 003's EventError, and how they are tried again.

A replay gives the events of the file a file of their own with a final name, without their errors: the
pipeline takes it up like any other, for that destination alone. What fails again is a reject again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import apsw
import msgspec

from headwater.crash_points import crash_point
from headwater.durable_files import Disk, cut_torn_line, exclusive, one_line, replacing, sync_folder
from headwater.log.files.layout import EventFolder, rotated_name

__all__ = [
    "EventError",
    "count_failed",
    "drop_failed",
    "read_failed",
    "request_replay",
    "settle_replays",
    "write_failed",
]

WRITE_BYTES = 1024 * 1024
NONE = msgspec.Raw(b"")
WRAPPED = ".errors"  # a file on its way from rejects to a replay; holds EventErrors still


class EventError(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An event that a destination could not take, as it was after context enrichment, and why.

    `source` says where it was, such as `<file>:<line>`: the same line is one reject, however often a crash
    makes the pipeline write it.
    """

    event: msgspec.Raw = NONE
    malformed_event: str = ""
    error: str
    event_id: str = ""
    destination_id: str = ""
    at: str = ""
    source: str = ""

    @classmethod
    def of(cls, line: bytes, error: str, *, destination_id: str, source: str, at: float) -> EventError:
        """The reject of a line, which may be anything."""
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        found = cls(error=error, destination_id=destination_id, source=source, at=stamp)
        try:
            fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            line.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found.malformed_event = line.decode(errors="replace")
            return found
        found.event = msgspec.Raw(line.strip())
        found.event_id = _event_id(fields)
        return found

    def line(self) -> bytes:
        """The event as a line of an incoming file."""
        return bytes(self.event) or self.malformed_event.encode()


# Made once: two threads that have msgspec prepare the same type at the same time crash the process.
_DECODER = msgspec.json.Decoder(EventError)


def write_failed(
    events_dir: Path, destination_id: str, errors: Iterable[EventError], *, disk: Disk | None = None
) -> int:
    """Append rejects to the destination's file and wait until they are on disk; returns how many."""
    folder = EventFolder(events_dir)
    folder.make()
    disk = disk or Disk()
    written = 0
    with exclusive(folder.failed / "lock"):
        path = folder.errors(destination_id)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            cut_torn_line(fd)
            gathered = bytearray()
            for error in errors:
                gathered += msgspec.json.encode(error) + b"\n"
                written += 1
                if len(gathered) >= WRITE_BYTES:
                    disk.write(fd, bytes(gathered))
                    gathered.clear()
            disk.write(fd, bytes(gathered))
            crash_point("failed.after_write")
            disk.sync(fd)
        finally:
            os.close(fd)
        sync_folder(path.parent)
    return written


def read_failed(events_dir: Path, destination_id: str) -> Iterator[EventError]:
    """The rejects of a destination in the order in which they were written, each once."""
    yield from _read(EventFolder(events_dir).errors(destination_id))


def count_failed(events_dir: Path) -> dict[str, int]:
    """How many rejects each destination has."""
    folder = EventFolder(events_dir)
    return {id: sum(1 for _ in _read(path)) for id, path in folder.error_files().items()}


def request_replay(events_dir: Path, destination_id: str, now: float) -> int:
    """Have the destination's rejects tried again by the next cycle of the pipeline; returns how many."""
    folder = EventFolder(events_dir)
    with exclusive(folder.failed / "lock"):
        path = folder.errors(destination_id)
        if not path.exists():
            return 0
        at = datetime.fromtimestamp(now, UTC)
        taken = [file.rotated_at for file in folder.rotated_files() if file.destination_id == destination_id]
        if taken:
            at = max(at, taken[-1] + timedelta(milliseconds=1))
        wrapped = folder.failed / (rotated_name("failed", destination_id, at) + WRAPPED)
        path.rename(wrapped)
        sync_folder(folder.failed)
        crash_point("failed.after_rename")
        return _write_replay_file(wrapped)


def drop_failed(events_dir: Path, destination_id: str) -> int:
    """Remove the destination's rejects for good; returns how many."""
    folder = EventFolder(events_dir)
    with exclusive(folder.failed / "lock"):
        path = folder.errors(destination_id)
        count = sum(1 for _ in _read(path))
        path.unlink(missing_ok=True)
        sync_folder(folder.failed)
    return count


def settle_replays(events_dir: Path) -> None:
    """Finish replays that a crash interrupted."""
    folder = EventFolder(events_dir)
    with exclusive(folder.failed / "lock"):
        for wrapped in sorted(folder.failed.glob(f"failed.dst=*.log{WRAPPED}")):
            if wrapped.with_suffix("").exists():
                wrapped.unlink()
            else:
                _write_replay_file(wrapped)


def _write_replay_file(wrapped: Path) -> int:
    """Write the events of the rejects to a file that the pipeline loads; returns how many."""
    target = wrapped.with_suffix("")
    errors = _read(wrapped)
    count = 0
    if (first := next(errors, None)) is not None:
        with replacing(target) as file:
            for count, error in enumerate(chain([first], errors), 1):  # noqa: B007 - it is returned
                file.write(one_line(error.line()) + b"\n")
    crash_point("failed.after_unwrap")
    wrapped.unlink()
    sync_folder(target.parent)
    return count


def _read(path: Path) -> Iterator[EventError]:
    # a database in a temporary file: a million rejects must not need a million texts in memory (G8)
    seen = apsw.Connection("")
    seen.execute("CREATE TABLE seen (source TEXT PRIMARY KEY) WITHOUT ROWID; BEGIN")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    error = _DECODER.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    if not line.endswith(b"\n"):
                        continue  # torn: whoever was writing it does it again
                    text = line.decode(errors="replace").rstrip("\n")
                    error = EventError(
                        malformed_event=text, error=f"Line {number} of {path.name} is no reject."
                    )
                if error.source:
                    seen.execute("INSERT OR IGNORE INTO seen VALUES (?)", (error.source,))
                    if not seen.changes():
                        continue
                yield error
    except FileNotFoundError:
        return
    finally:
        seen.close(True)


def _event_id(fields: dict[str, msgspec.Raw]) -> str:
    try:
        context = msgspec.json.decode(fields.get("eventn_ctx", b"{}"), type=dict[str, msgspec.Raw])
        return str(msgspec.json.decode(context.get("event_id", fields.get("event_id", b'""'))))
    except (msgspec.DecodeError, RecursionError):
        return ""
