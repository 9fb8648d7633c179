"""The queue: an ordered, durable log of events in partition files, with named readers."""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, LogError
from headwater.faults import crash_point
from headwater.log import recovery, sqlite
from headwater.log.cursors import Cursor, Outcome, Reader
from headwater.log.index import CursorRow
from headwater.log.inspect import LogStat, summarise
from headwater.log.lock import FolderLock
from headwater.log.packing import Packer
from headwater.log.partitions import Extent, PartitionWriter, disk_bytes, files_of, partition_path
from headwater.log.retention import HOUR, removals
from headwater.log.writer import Answer, Entry, Writer
from headwater.metrics import Metrics
from headwater.settings import LogSettings

__all__ = ["Log"]

log = logging.getLogger(__name__)

COMPLAIN_SECONDS = 60.0  # the same trouble is logged once in this time


class Log:
    """Appends are acknowledged when they are on disk (G1); readers see them in that order (G2).

    One writer thread alone changes partitions: it commits, rotates, collects and repairs. Everybody else
    reads copies of the list of extents. Thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        lock: FolderLock,
        found: recovery.Found,
        *,
        clock: Clock,
        metrics: Metrics,
        vfs: str | None,
    ) -> None:
        self.folder = folder
        self.clock = clock
        self.vfs = vfs
        self.healthy = True
        self.end = found.end
        self._settings = settings
        self._lock = lock
        self._index = found.index
        self._metrics = metrics
        self._extents: tuple[Extent, ...] = tuple(found.extents)
        self._cursors = {row.reader: Cursor(self._index, row) for row in self._index.cursors()}
        self._packer = Packer()
        self._current: PartitionWriter | None = None
        self._opened_at = 0.0
        self._stamp = max((extent.last_at for extent in found.extents), default=0.0)
        self._tail = os.open(folder / "tail", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._abandoned: set[Path] = set()
        self._listeners: list[Callable[[], None]] = []
        self._complained: dict[str, float] = {}
        self._closed = False
        self._closing = threading.Lock()
        self._writer = Writer(
            self._commit, self._maintain, settings.collect_seconds, settings.max_commit_bytes
        )
        self._count()

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: LogSettings | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        vfs: str | None = None,
    ) -> Log:
        """Take the folder's lock, set aside what is damaged (G9), and start the writer."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            found = recovery.recover(folder, vfs=vfs)
            opened = cls(
                folder,
                settings or LogSettings(),
                lock,
                found,
                clock=clock or SystemClock(),
                metrics=metrics or Metrics(),
                vfs=vfs,
            )
        except BaseException:
            lock.release()
            raise
        opened._writer.start()
        return opened

    # --- appending -----------------------------------------------------------------------------------

    def append(self, bodies: Sequence[bytes], answer: Answer, token: Any) -> None:
        """Hand in events that stay together; never blocks.

        When the commit that holds them is on disk, the writer's thread calls `answer([token, …], None)`,
        once for neighbours that share the same `answer`, in order. On failure it gets the error instead,
        and none of the events was taken.
        """
        self._writer.append(bodies, answer, token)

    def append_wait(self, bodies: Sequence[bytes]) -> int:
        """Append and wait until it is on disk; the position of the first event."""
        receipt = _Receipt()
        self._writer.append(bodies, _Receipt.answer, receipt)
        return receipt.future.result()

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for their commit."""
        return self._writer.pending_bytes

    def on_append(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each commit, in the writer's thread; returns how to stop that."""
        self._listeners = [*self._listeners, callback]

        def stop() -> None:
            self._listeners = [each for each in self._listeners if each is not callback]

        return stop

    def _commit(self, group: list[Entry]) -> None:
        """Store one group; the writer's thread answers everybody in it afterwards."""
        began = self.clock.monotonic()
        bodies = [body for entry in group for body in entry.bodies]
        packed = self._packer.pack(bodies)
        first, stamp = self.end, max(self._stamp, self.clock.now())  # never back, whatever the clock does
        try:
            partition = self._partition_for(len(packed))
            partition.insert(first, len(bodies), stamp, packed)
        except Exception as error:
            raise self._commit_failed(error) from error
        crash_point("writer.after_commit")
        self._grow(first, len(bodies), stamp)
        position = first
        for entry in group:
            if type(entry.token) is _Receipt:
                entry.token.first = position
            position += len(entry.bodies)
        self.healthy = True
        self._metrics.counter("log_events_appended").add(len(bodies))
        self._metrics.counter("log_bytes_appended").add(sum(entry.bytes for entry in group))
        self._metrics.histogram("log_commit_seconds").observe(self.clock.monotonic() - began)
        for listener in self._listeners:
            listener()

    def _grow(self, first: int, count: int, stamp: float) -> None:
        extent = self._extents[-1]
        extent.first_at = extent.first_at or stamp
        extent.last_at = self._stamp = stamp
        extent.end = self.end = first + count
        try:
            # Not synced: it only tells how much is missing, should this very partition be found damaged.
            os.pwrite(self._tail, b"%020d\n" % self.end, 0)
        except OSError as error:
            self.trouble("The log's tail could not be noted", error)

    def _commit_failed(self, error: Exception) -> LogError:
        failure = self.classify(error)
        self.healthy = False
        self._metrics.counter("log_commit_errors").add(
            1, "full" if isinstance(error, apsw.FullError) else "io"
        )
        self.trouble("A commit failed", error)
        if self._current is not None and not isinstance(error, apsw.FullError):
            # After a failed fsync the kernel may have dropped the pages it could not write, and a later
            # success would not mean that they are there. So nothing is ever written to this file again.
            self._abandoned.add(self._current.path)
            self._current.abandon()
            self._current = None
        return failure

    # --- partitions ----------------------------------------------------------------------------------

    def _partition_for(self, coming_bytes: int) -> PartitionWriter:
        if self._current is not None and self._is_full(self._extents[-1], coming_bytes):
            self._close_current()
            self._create()
            self._guarded_collect()
        if self._current is None:
            last = self._extents[-1] if self._extents else None
            if (
                last is None
                or last.end < self.end
                or self._is_full(last, coming_bytes)
                or not self._reopen(last)
            ):
                self._create()
        assert self._current is not None
        return self._current

    def _is_full(self, extent: Extent, coming_bytes: int) -> bool:
        if extent.end == extent.first:
            return False
        extent.bytes = disk_bytes(extent.path)
        return extent.bytes + coming_bytes > self._settings.partition_bytes or self._is_old()

    def _is_old(self) -> bool:
        return self.clock.monotonic() - self._opened_at >= self._settings.partition_hours * HOUR

    def _create(self) -> None:
        path = partition_path(self.folder, self.end)
        self._current = PartitionWriter(path, vfs=self.vfs, limit_bytes=self._settings.partition_bytes)
        self._opened_at = self.clock.monotonic()
        if not self._extents or self._extents[-1].path != path:
            self._extents = (*self._extents, Extent(path, self.end, self.end, 0.0, 0.0, 0))
        crash_point("rotation.after_create")

    def _reopen(self, extent: Extent) -> bool:
        """Go on with the last partition, as after a restart, unless it turns out to be damaged."""
        if extent.path in self._abandoned:
            return False
        try:
            self._current = PartitionWriter(
                extent.path, vfs=self.vfs, limit_bytes=self._settings.partition_bytes
            )
        except Exception as error:
            if not sqlite.is_damage(error):
                raise
            self._repair(extent, error)
            return False
        age = max(0.0, self.clock.now() - extent.first_at) if extent.first_at else 0.0
        self._opened_at = self.clock.monotonic() - age
        return True

    def _close_current(self) -> None:
        assert self._current is not None
        crash_point("rotation.before_close")
        self._current.close()
        self._current = None
        self._extents[-1].bytes = disk_bytes(self._extents[-1].path)
        crash_point("rotation.after_close")

    def _maintain(self) -> None:
        """Now and then: close a partition that is old enough, and collect what may go."""
        if self._current is not None and self._extents[-1].end > self._extents[-1].first and self._is_old():
            self._close_current()
        self._guarded_collect()

    def _guarded_collect(self) -> None:
        try:
            self.collect()
        except (apsw.Error, OSError) as error:
            self.trouble("Collection failed", error)

    def collect(self) -> None:
        """Remove what every reader has passed and what is over a limit; what is dropped is counted (G3)."""
        self._writer.call(self._collect)

    def _collect(self) -> None:
        closed = self._extents if self._current is None else self._extents[:-1]
        positions = [cursor.position for cursor in list(self._cursors.values())]
        for extent, reason in removals(closed, positions, self._settings, self.clock.now()):
            crash_point("collection.before_index")
            if reason != "passed":
                self._drop(extent, reason)
            # The counts are on disk before the file goes: a crash in between removes it the next time.
            crash_point("collection.after_index")
            self._extents = tuple(each for each in self._extents if each is not extent)
            for file in files_of(extent.path):
                file.unlink(missing_ok=True)
            crash_point("collection.after_unlink")
        self._count()

    def _drop(self, extent: Extent, reason: str) -> None:
        outcome: Outcome = "dropped_age" if reason == "age" else "dropped_bytes"
        for cursor in list(self._cursors.values()):
            lost = cursor.finish({outcome: range(cursor.position, extent.end)}, durable=True)[outcome]
            self.count_dropped(cursor.row.reader, reason, lost)
        if not self._cursors:
            lost = extent.end - extent.first
            self._index.note("dropped_unread", str(int(self._index.notes("dropped_unread") or 0) + lost))
            self.count_dropped("", reason, lost)

    def count_dropped(self, reader: str, reason: str, events: int) -> None:
        if events:
            self._metrics.counter("log_events_dropped").add(events, reader, reason)
            log.warning("%d events were dropped for %s by %s.", events, reader or "want of a reader", reason)

    def repair(self, extent: Extent, error: Exception) -> None:
        """Set a damaged partition aside and keep what can still be read of it (G9)."""
        self._writer.call(lambda: self._repair(extent, error))

    def _repair(self, extent: Extent, error: Exception) -> None:
        if self.is_gone(extent):
            return
        if self._current is not None and extent is self._extents[-1]:
            self._current.abandon()
            self._current = None
        kept = recovery.repair(extent.path, error, vfs=self.vfs)
        i = next(i for i, each in enumerate(self._extents) if each is extent)
        self._extents = (*self._extents[:i], *([kept] if kept else []), *self._extents[i + 1 :])
        self._count()

    # --- readers -------------------------------------------------------------------------------------

    def reader(self, name: str, start: str = "earliest") -> Reader:
        """The reader of this name, at its cursor; a new one begins at `earliest` or `latest`.

        After the index was lost every reader counts as new and begins at the earliest, since what it had
        finished is not known any more.
        """
        with self._index.lock:
            cursor = self._cursors.get(name)
            if cursor is None:
                first = self._extents[0].first if self._extents else self.end
                latest = start == "latest" and self._index.notes("rebuilt") is None
                position = self.end if latest else first
                cursor = Cursor(self._index, CursorRow(name, position, position))
                cursor.finish({}, durable=True)
                self._cursors[name] = cursor
        return Reader(self, cursor)

    def forget(self, name: str) -> None:
        """Remove a reader's cursor, so that it holds nothing back any more."""
        with self._index.lock:
            self._cursors.pop(name, None)
            self._index.forget(name)

    def extent_at(self, position: int) -> Extent | None:
        """The partition that holds the position, or the next one that holds any."""
        extents = self._extents
        i = bisect_right(extents, position, key=lambda extent: extent.end)
        return extents[i] if i < len(extents) else None

    def is_gone(self, extent: Extent) -> bool:
        return all(each is not extent for each in self._extents)

    # --- state ---------------------------------------------------------------------------------------

    def stat(self) -> LogStat:
        """The log's figures, now."""
        extents, now = self._extents, self.clock.now()
        for extent in extents[-1:]:
            extent.bytes = disk_bytes(extent.path)

        def lag_seconds(row: CursorRow) -> float:
            extent = self.extent_at(row.position)
            return max(0.0, now - extent.first_at) if extent else 0.0

        with self._index.lock:
            rows = [cursor.row for cursor in self._cursors.values()]
            unread = int(self._index.notes("dropped_unread") or 0)
            return summarise(
                extents, rows, self.end, recovery.set_aside(self.folder), unread, True, lag_seconds
            )

    def classify(self, error: Exception) -> LogError:
        return error if isinstance(error, LogError) else sqlite.classify(error, self.folder)

    def trouble(self, text: str, error: Exception) -> None:
        """Say it once a minute, not a thousand times a second."""
        now = self.clock.monotonic()
        if now - self._complained.get(text, -COMPLAIN_SECONDS) >= COMPLAIN_SECONDS:
            self._complained[text] = now
            log.error("%s: %s: %s", text, type(error).__name__, error)

    def _count(self) -> None:
        self._metrics.gauge("log_bytes").set(sum(extent.bytes for extent in self._extents))
        self._metrics.gauge("log_partitions").set(len(self._extents))
        self._metrics.gauge("log_damaged_files").set(len(recovery.set_aside(self.folder)))

    def close(self) -> None:
        """Take nothing new, commit and answer what is pending, close the files, free the folder."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._writer.close()
            if self._current is not None:
                self._current.close()
            self._index.close()
            os.close(self._tail)
            self._lock.release()


class _Receipt:
    """Lets `append_wait` wait, and tells it the position."""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.first = 0

    @staticmethod
    def answer(receipts: list[Any], error: HeadwaterError | None) -> None:
        for receipt in receipts:
            if error is None:
                receipt.future.set_result(receipt.first)
            else:
                receipt.future.set_exception(error)
