"""Files of rejects, one per destination: a line of JSON (EventError) for each.

A replay writes the events of a file, without their errors, to another file with a final name. The pipeline
loads it like any other, for that destination alone. Events that fail again become rejects again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import apsw
import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.log.files.checked_lines import (
    DAMAGED,
    Line,
    LineReader,
    LineWriter,
    checked_line,
    has_checksums,
)
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, rotated_id, rotated_name, status_path
from headwater.log.rejects.destination_counts import RejectCount
from headwater.log.rejects.destination_limits import drop_beyond, dropped_rejects, finish_cut
from headwater.log.rejects.totals import DESTINATION_PREFIX, Dropped
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import Disk, cut_torn_line, exclusive, one_line, replacing, sync_folder

WRITE_BYTES = 1024 * 1024
NONE = msgspec.Raw(b"")
REPLAY_IN_PROGRESS = ".errors"  # the suffix of a file of rejects that is being turned into a file of events
SELECTED = ".selected"  # after that: a copy of rejects that are about to leave their file


class EventError(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An event that a destination could not load, as it was after context enrichment, and why.

    `source` is where it was: `<file>:<row>` or a position. `row` identifies the line in its file, and is not
    always its line number. The same line is one reject, even if a crash makes the pipeline write it again.
    """

    event: msgspec.Raw = NONE
    malformed_event: str = ""
    error: str
    event_id: str = ""
    destination_id: str = ""
    at: str = ""
    source: str = ""
    damaged: bool = False
    """Whether the line did not match its checksum: a replay does not make a row of it either."""

    @classmethod
    def of(
        cls, line: bytes, error: str, *, destination_id: str, source: str, at: float, damaged: bool = False
    ) -> EventError:
        """The reject of a line, which need not be JSON."""
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        found = cls(error=error, destination_id=destination_id, source=source, at=stamp, damaged=damaged)
        if damaged:
            found.malformed_event = line.decode(errors="replace")
            return found
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


Wanted = Callable[[EventError], bool]

_DECODER = json_decoder(EventError)


class DestinationRejects:
    """The files of rejects below an events folder; several processes may use them at once."""

    def __init__(self, events_dir: Path) -> None:
        self._folder = EventFolder(events_dir)
        self._counting = threading.Lock()
        self._counts: dict[str, RejectCount] = {}
        self._known: dict[str, int] = {}

    @property
    def ids(self) -> list[str]:
        """The destinations that have rejects."""
        return sorted(self._folder.error_files())

    def append(self, destination_id: str, errors: Iterable[EventError], *, disk: Disk | None = None) -> int:
        """Append rejects and wait until they are on disk; returns how many."""
        self._folder.make()
        disk = disk or Disk()
        written = 0
        with self._exclusive():
            path = self._folder.errors(destination_id)
            _add_checksums(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                cut_torn_line(fd)
                buffer = bytearray()
                for error in errors:
                    buffer += checked_line(msgspec.json.encode(error))
                    written += 1
                    if len(buffer) >= WRITE_BYTES:
                        disk.write(fd, bytes(buffer))
                        buffer.clear()
                disk.write(fd, bytes(buffer))
                crash_point("failed.after_write")
                disk.sync(fd)
            finally:
                os.close(fd)
            sync_folder(path.parent)
        return written

    def read(self, destination_id: str) -> Iterator[EventError]:
        """The rejects of a destination in the order in which they were written, each once."""
        yield from _read(self._folder.errors(destination_id))

    def counts(self, *, timeout_seconds: float = -1) -> dict[str, int]:
        """How many rejects each destination has; a file is read once, and then as it grows.

        With a time-out: as of the last look, if another thread still counts.
        """
        if self._counting.acquire(timeout=timeout_seconds):
            try:
                self._known = {id: count for id in self.ids if (count := self._count(id).look())}
            finally:
                self._counting.release()
        return dict(self._known)

    def apply_limits(self, *, most_bytes: int, age_seconds: float, now: float) -> None:
        """Drop the oldest rejects of each destination beyond a size and an age, and count them (G3)."""
        for id in self.ids:
            with self._counting, self._exclusive():
                drop_beyond(
                    self._folder.errors(id),
                    self._count(id),
                    DESTINATION_PREFIX + id,
                    most_bytes=most_bytes,
                    age_seconds=age_seconds,
                    now=now,
                )

    def bytes(self, destination_id: str) -> int:
        """The size of a destination's rejects at the last look at their number."""
        with self._counting:
            return self._count(destination_id).bytes

    def dropped(self) -> list[Dropped]:
        """What limits have taken, by destination and reason."""
        return [gone for path in sorted(self._folder.dropped_files()) for gone in dropped_rejects(path)]

    def _count(self, destination_id: str) -> RejectCount:
        if destination_id not in self._counts:
            path = self._folder.errors(destination_id)
            self._counts[destination_id] = RejectCount(path, lambda line, number: _origin(path, line, number))
        return self._counts[destination_id]

    def request_replay(self, destination_id: str, now: float, wanted: Wanted | None = None) -> int:
        """Have the next cycle of the pipeline load the destination's rejects, or some; returns how many."""
        with self._exclusive():
            path = self._folder.errors(destination_id)
            finish_cut(path)
            self._finish_selections()
            if not path.exists():
                return 0
            at = datetime.fromtimestamp(now, UTC)
            files = self._folder.rotated_files()
            if taken := [file.rotated_at for file in files if file.destination_id == destination_id]:
                at = max(at, taken[-1] + timedelta(milliseconds=1))
            name = rotated_name("failed", destination_id, at) + REPLAY_IN_PROGRESS
            wrapped = self._folder.failed / name
            if wanted is None:
                path.rename(wrapped)
            else:
                selected = wrapped.with_name(name + SELECTED)
                if not _copy(path, selected, wanted):
                    selected.unlink()
                    return 0
                crash_point("failed.after_selection")
                _remove(path, wanted)
                crash_point("failed.after_removal")
                selected.rename(wrapped)
            sync_folder(self._folder.failed)
            crash_point("failed.after_rename")
            return _write_replay_file(wrapped)

    def drop(self, destination_id: str, wanted: Wanted | None = None) -> int:
        """Remove the destination's rejects, or some, for good; returns how many."""
        with self._exclusive():
            path = self._folder.errors(destination_id)
            finish_cut(path)
            self._finish_selections()
            if wanted is not None:
                count = sum(1 for each in _read(path) if wanted(each))
                if count:
                    _remove(path, wanted)
                return count
            count = sum(1 for _ in _read(path))
            path.unlink(missing_ok=True)
            sync_folder(self._folder.failed)
        return count

    def finish_interrupted(self) -> None:
        """Finish replays that a crash interrupted."""
        with self._exclusive():
            self._finish_selections()
            for wrapped in sorted(self._folder.failed.glob(f"failed.dst=*.log{REPLAY_IN_PROGRESS}")):
                if wrapped.with_suffix("").exists():
                    wrapped.unlink()
                else:
                    _write_replay_file(wrapped)

    def _finish_selections(self) -> None:
        """Go on with replays of some rejects that have left their file; of others remove the copy."""
        for selected in sorted(self._folder.failed.glob(f"failed.dst=*.log{REPLAY_IN_PROGRESS}{SELECTED}")):
            first = next(_read(selected), None)
            path = self._folder.errors(rotated_id(selected.name))
            if first is None or any(each == first for each in _read(path)):
                selected.unlink()
            else:
                selected.rename(selected.with_suffix(""))
            sync_folder(self._folder.failed)

    def _exclusive(self) -> AbstractContextManager[None]:
        """Lock the files, so that none is renamed while another process appends to it."""
        return exclusive(self._folder.failed / "lock")


def _write_replay_file(wrapped: Path) -> int:
    """Write the events of the rejects to a file that the pipeline loads; returns how many."""
    target = wrapped.with_suffix("")
    errors = _read(wrapped)
    count = 0
    if (first := next(errors, None)) is not None:
        writer = LineWriter()
        with replacing(target) as file:
            for error in chain([first], errors):
                line = one_line(error.line())
                if error.damaged:  # as it was read, so that it does not match again
                    lines, checksums = writer.unchecked(line)
                else:
                    lines, checksums = writer.lines([line])
                file.write(lines)
                writer.wrote(checksums)
            count = writer.written.lines
            status = FileStatus(status_path(target))
            status.record_written(writer.written)
            status.save()
    crash_point("failed.after_unwrap")
    wrapped.unlink()
    sync_folder(target.parent)
    return count


def _copy(source: Path, target: Path, wanted: Wanted) -> int:
    """Write those of a file's rejects to a file that takes the place of the target; returns how many."""
    count = 0
    with replacing(target) as file:
        for error in _read(source):
            if wanted(error):
                file.write(checked_line(msgspec.json.encode(error)))
                count += 1
    return count


def _remove(path: Path, wanted: Wanted) -> None:
    if not _copy(path, path, lambda error: not wanted(error)):
        path.unlink()


def _add_checksums(path: Path) -> None:
    """Write a file of an earlier release again, with checksums; the lines of a file are of one kind."""
    if path.exists() and path.stat().st_size and not has_checksums(path):
        with path.open("rb") as source, replacing(path) as file:
            for line in source:
                if line.endswith(b"\n"):
                    file.write(checked_line(line.removesuffix(b"\n")))


def _read(path: Path) -> Iterator[EventError]:
    # a database in a temporary file: a million rejects must not need a million texts in memory (G8)
    seen = apsw.Connection("")
    seen.execute("CREATE TABLE seen (source TEXT PRIMARY KEY) WITHOUT ROWID; BEGIN")
    try:
        for number, line in enumerate(LineReader(path, leaves_torn=True), 1):
            error = _decoded(path, line, number)
            if error.source:
                seen.execute("INSERT OR IGNORE INTO seen VALUES (?)", (error.source,))
                if not seen.changes():
                    continue
            yield error
    except FileNotFoundError:
        return
    finally:
        seen.close(True)


def _decoded(path: Path, line: Line, number: int) -> EventError:
    """The reject of a line; one of its own if the line is none."""
    reason = f"is {DAMAGED}" if line.is_damaged else ""
    try:
        error = _DECODER.decode(line.event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = reason or "is not a reject"
    if reason:
        return EventError(
            malformed_event=line.event.decode(errors="replace"),
            error=f"Line {number} of {path.name} {reason}.",
            damaged=line.is_damaged,
        )
    return error


def _origin(path: Path, line: Line, number: int) -> tuple[str, str]:
    """The source and the time of a reject."""
    found = _decoded(path, line, number)
    return found.source, found.at


def _event_id(fields: dict[str, msgspec.Raw]) -> str:
    try:
        context = msgspec.json.decode(fields.get("eventn_ctx", b"{}"), type=dict[str, msgspec.Raw])
        return str(msgspec.json.decode(context.get("event_id", fields.get("event_id", b'""'))))
    except (msgspec.DecodeError, RecursionError):
        return ""
