"""The archive of a stream destination: loaded events, as files like those of batch mode.

archive/2026-11-16/streaming-archive.dst=<destination>-2026-11-16T10-05-00.000.log.gz

A file is written from the queue, independently of loading. Its positions are recorded before it is written,
so that a crash neither leaves an event out nor puts it into two files. The queue collects events only after
they are archived.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.log.files.archive import open_gzip
from headwater.log.files.checked_lines import LineWriter
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, rotated_name, status_path
from headwater.log.queue.offline import commits
from headwater.log.streams import StreamCursor
from headwater.settings import Settings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import make_folder, one_line, replacing

MAX_EVENTS = 500_000
"""Maximum events of one file."""


class StreamArchive:
    """Writes loaded events to the archive. Used by one thread; `cursor_lock` protects the cursor."""

    def __init__(
        self, settings: Settings, id: str, queue: Path, cursor: StreamCursor, cursor_lock: threading.Lock
    ) -> None:
        self._folder = EventFolder(settings.events_dir)
        self._seconds = settings.events.rotation_minutes * 60
        self._id = id
        self._queue = queue
        self._cursor = cursor
        self._cursor_lock = cursor_lock
        self._waits_since: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether a file is due: as often as incoming files are rotated, or when it is full."""
        waiting = self._cursor.position - self._cursor.archived
        if not waiting:
            self._waits_since = None
            return False
        if self._waits_since is None:
            self._waits_since = now
        return waiting >= MAX_EVENTS or now - self._waits_since >= self._seconds

    def run(self, now: float) -> None:
        """Archives all loaded events."""
        self._waits_since = None
        while self._cursor.archived < self._cursor.position:
            if not self._cursor.archive_name:
                self._plan(now)
            self._write(self._folder.archive / self._cursor.archive_name)
            crash_point("stream.after_archive")
            with self._cursor_lock:
                self._cursor.archived = self._cursor.archive_end
                self._cursor.archive_name, self._cursor.archive_end = "", 0
                self._cursor.save(self._queue)

    def _plan(self, now: float) -> None:
        at = datetime.fromtimestamp(now, UTC)
        while (self._folder.archive / self._name(at)).exists():
            at += timedelta(milliseconds=1)
        with self._cursor_lock:
            self._cursor.archive_name = self._name(at)
            self._cursor.archive_end = min(self._cursor.position, self._cursor.archived + MAX_EVENTS)
            self._cursor.save(self._queue)

    def _name(self, at: datetime) -> str:
        return f"{at:%Y-%m-%d}/{rotated_name('streaming-archive', self._id, at)}.gz"

    def _write(self, target: Path) -> None:
        make_folder(target.parent)
        writer = LineWriter()
        positions: list[tuple[int, int, int]] = []
        line = next_position = epoch = 0
        with replacing(target) as raw, open_gzip(raw) as packed:
            for commit in commits(self._queue, self._cursor.archived, self._cursor.archive_end):
                if not positions or (commit.first, commit.epoch) != (next_position, epoch):
                    positions.append((line, commit.first, commit.epoch))
                line, next_position, epoch = line + len(commit.bodies), commit.end, commit.epoch
                lines, checksums = writer.lines(map(one_line, commit.bodies))
                packed.write(lines)
                writer.wrote(checksums)
            status = FileStatus(status_path(target))
            status.record_written(writer.written)
            status.record_positions(self._cursor.queue, positions)  # by which the ledger knows the events
            status.save()
