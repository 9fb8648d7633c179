"""The log: append, commit, readers, retention, close. Start reading here."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import apsw

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, LogError, LogFull, LogUnavailable
from headwater.log.leap_safe_clock import GAP_SECONDS, LeapSafeClock
from headwater.log.queue import recovery, sqlite
from headwater.log.queue.append_times import AppendTimes
from headwater.log.queue.commit_format import Packer
from headwater.log.queue.cursors import Cursor, CursorRow, Outcome, doomed
from headwater.log.queue.group_commit import GroupCommit, OnCommitted, PendingAppend, Receipt
from headwater.log.queue.offline import LogStat, received_at, summarise, tail_line
from headwater.log.queue.partition_file import PartitionRange, disk_bytes
from headwater.log.queue.partitions import HOUR_SECONDS, Partitions
from headwater.log.queue.reader import Reader
from headwater.log.queue.retention import removals
from headwater.log.queue.sqlite import damaged_file_names, trim_damaged
from headwater.log.recent_losses import RecentLosses
from headwater.metrics import Metrics
from headwater.settings import LogSettings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import FolderLock, is_same_file, make_folder

logger = logging.getLogger(__name__)

DROP_REASONS = ("age", "bytes", "damage")
LOG_AGAIN_SECONDS = 60.0  # the same trouble is logged once in this time
LOOK_SECONDS = 1.0  # between two looks whether the files are still in place, if no event arrives


class Log:
    """Appends are acknowledged when they are on disk (G1); readers see them in that order (G2).

    One writer thread alone changes partitions: it commits, rotates, removes old ones and repairs. Other
    threads read `partitions.ranges`. Thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        lock: FolderLock,
        found: recovery.RecoveredLog,
        *,
        clock: Clock,
        metrics: Metrics,
        on_commit_error: Callable[[str], None] | None,
        vfs: str | None,
    ) -> None:
        self.folder = folder
        self.clock = clock
        self.healthy = True
        self.end = found.end
        # A log that is restored from a copy, or cloned, gives out positions again. The epoch distinguishes
        # the events: no two openings have the same one.
        self.epoch = secrets.randbits(63) | 1
        self._vfs = vfs
        self._settings = settings
        self._lock = lock
        self._index = found.index
        self._metrics = metrics
        self._on_commit_error = on_commit_error
        self._losses = RecentLosses(clock)
        self._append_times = AppendTimes(found.end)
        self._opened_at = clock.monotonic()
        self._damaged = 0  # files, at the last count
        self.partitions = Partitions(folder, found.ranges, settings, clock=clock, vfs=vfs)
        self._cursors = {row.reader: Cursor(self._index, row) for row in self._index.cursors()}
        self._packer = Packer()
        self._stamp = max((partition.last_at for partition in found.ranges), default=0.0)
        limit = settings.retention_hours * HOUR_SECONDS
        self._witnessed = LeapSafeClock(
            folder / "clock",
            limit_seconds=limit,
            gap_seconds=min(GAP_SECONDS, limit / 10),
            clock=clock,
            newest=self._stamp,
        )
        self._tail = _open_tail(folder)
        self._looked: tuple[int, int, int] | None = None  # the folder's state at the last look
        self._collected_at = clock.monotonic()
        self._listeners: list[Callable[[], None]] = []
        self._logged_at: dict[str, float] = {}
        self._closed = False
        self._closing = threading.Lock()
        self._group_commit = GroupCommit(
            self._commit,
            self._maintain,
            min(LOOK_SECONDS, settings.collect_seconds),
            settings.max_commit_bytes,
        )
        for reason in ("full", "io"):
            metrics.counter("log_commit_errors").begin(reason)
        self._begin_counting("")
        for cursor in self._cursors.values():
            self._begin_counting(cursor.row.reader)
            for outcome, events in cursor.drop_doomed().items():
                self.count_dropped(cursor.row.reader, outcome.removeprefix("dropped_"), events)
        metrics.gauge("log_bytes").set(self._bytes)
        self._count()

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: LogSettings | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        on_commit_error: Callable[[str], None] | None = None,
        vfs: str | None = None,
    ) -> Log:
        """Lock the folder, set damaged files aside (G9), and start the writer.

        `on_commit_error` is called with the reason, `full` or `io`, by the writer's thread.
        """
        with ExitStack() as undo:
            try:
                make_folder(folder)
                lock = FolderLock(folder)
                undo.callback(lock.release)
                found = recovery.recover(folder, vfs=vfs)
                undo.callback(found.index.close)
                opened = cls(
                    folder,
                    settings or LogSettings(),
                    lock,
                    found,
                    clock=clock or SystemClock(),
                    metrics=metrics or Metrics(),
                    on_commit_error=on_commit_error,
                    vfs=vfs,
                )
            except (apsw.Error, OSError) as error:
                raise sqlite.classify(error, folder) from error
            undo.pop_all()
        opened._group_commit.start()
        return opened

    # --- appending -----------------------------------------------------------------------------------

    def append(self, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object) -> None:
        """Append events that stay together; never blocks. LogClosed while the log is being closed.

        The writer's thread calls `on_committed([receipt, …], error)`, in order, once for neighbours with the
        same callback. Without an error the events are on disk (G1); with one, none of them is in the log.
        """
        self._group_commit.append(bodies, on_committed, receipt)

    def append_all(self, items: Sequence[tuple[Sequence[bytes], Any]], on_committed: OnCommitted) -> None:
        """`append` for several (bodies, receipt) at once, in order, with one wake-up of the writer."""
        self._group_commit.append_all(items, on_committed)

    def append_wait(self, bodies: Sequence[bytes]) -> int:
        """Append events, wait until they are on disk, and return the position of the first."""
        receipt = Receipt()
        self._group_commit.append(bodies, Receipt.complete, receipt)
        return receipt.future.result()

    def on_append(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each commit, in the writer's thread; returns a function that ends this."""
        self._listeners = [*self._listeners, callback]

        def stop() -> None:
            self._listeners = [each for each in self._listeners if each is not callback]

        return stop

    def _commit(self, group: list[PendingAppend]) -> None:
        """Store one group; the writer's thread completes its requests afterwards."""
        began = self.clock.monotonic()
        bodies = [body for append in group for body in append.bodies]
        position = first = self.end
        for append in group:
            if type(append.receipts[0]) is Receipt:  # it then is the only one
                append.receipts[0].first = position
            position += len(append.bodies)
        if not bodies:
            return
        stamp = self._witnessed.stamp(self._stamp)
        try:
            packed = self._packer.pack(first, stamp, bodies, self.epoch)
            if self.partitions.is_due(len(packed)):
                self.partitions.close_current()
                self._guarded_collect()
            self.partitions.insert(first, len(bodies), stamp, packed)
            if not self._is_folder_unchanged():
                self._look()
        except Exception as error:
            raise self._commit_failed(error) from error
        self._append_times.add(position, began)
        self.end, self._stamp, self.healthy = position, stamp, True
        try:
            # Not synced: it is used only to count the lost events if this partition is found damaged.
            os.pwrite(self._tail, tail_line(self.end), 0)
        except OSError as error:
            self.log_once_a_minute("The end of the log could not be written to `tail`", error)
        self._metrics.counter("log_events_appended").add(len(bodies))
        self._metrics.counter("log_bytes_appended").add(sum(append.bytes for append in group))
        self._metrics.histogram("log_commit_seconds").observe(self.clock.monotonic() - began)
        for listener in self._listeners:
            self._group_commit.run_and_log_errors(listener)

    def _commit_failed(self, error: Exception) -> LogError:
        failure = self.classify(error)
        self.healthy = False
        reason = "full" if isinstance(failure, LogFull) else "io"
        self._metrics.counter("log_commit_errors").add(1, reason)
        if self._on_commit_error is not None:
            self._on_commit_error(reason)
        self.log_once_a_minute("A commit failed", error)
        self.partitions.failed(error)
        return failure

    # --- files that are removed or replaced under this process ------------------------------------------

    def _is_folder_unchanged(self) -> bool:
        """Whether nothing was created, renamed or removed in the folder since the last look."""
        return (state := _state_of(self.folder)) is not None and state == self._looked

    def _look(self) -> None:
        """Restore removed files; LogUnavailable if the folder or its lock is not ours, and keeps no event."""
        self._looked = _state_of(self.folder)
        try:
            is_held = self._lock.is_held()
        except OSError as error:
            raise self.classify(error) from error
        if not is_held:
            self._looked = None
            raise LogUnavailable(
                f"The folder {self.folder} or its file `lock` was removed or replaced under this server; "
                "nothing was taken.",
                hint="Stop any other server on this folder, then put the folder back or restart this server.",
            )
        self.partitions.restore_removed()
        if not is_same_file(self._tail, self.folder / "tail"):
            old, self._tail = self._tail, _open_tail(self.folder)
            os.close(old)
        if not self._index.is_in_place():
            self._replace_index(FileNotFoundError("it was removed or replaced"))

    # --- collection ----------------------------------------------------------------------------------

    def _maintain(self) -> None:
        """Periodic work: look at the files, probe a disk that failed, close an old partition, collect."""
        try:
            self._look()
        except (HeadwaterError, apsw.Error, OSError) as error:
            self.healthy = False
            self.log_once_a_minute("The log takes no events", error)
            return
        if self.clock.monotonic() - self._collected_at < self._settings.collect_seconds:
            return
        self._collected_at = self.clock.monotonic()
        if not self.healthy:
            self._probe()
        self.partitions.close_if_old()
        self._guarded_collect()

    def _probe(self) -> None:
        """Find out whether the disk takes writes again: while /readyz fails, perhaps no event arrives."""
        path = self.folder / "probe"
        try:
            with path.open("wb", buffering=0) as file:
                written = file.write(bytes(sqlite.LOW_SPACE_BYTES))
                os.fsync(file.fileno())
            self.healthy = written == sqlite.LOW_SPACE_BYTES
        except OSError as error:
            self.log_once_a_minute("The disk does not take writes yet", error)
        finally:
            path.unlink(missing_ok=True)

    def _guarded_collect(self) -> None:
        try:
            self._collect()
        except (apsw.Error, OSError) as error:
            self.on_index_error("Collection failed", error)

    def collect(self) -> None:
        """Remove partitions that every reader has passed or that exceed a limit; drops are counted (G3)."""
        with self.classified():
            self._group_commit.call(self._collect)

    def _collect(self) -> None:
        cursors = list(self._cursors.values())
        positions = [cursor.position for cursor in cursors]
        stored = False
        if not all(cursor.is_stored for cursor in cursors):  # the disk had refused; it may be well again
            stored = self._store_cursors()
        for partition, reason in removals(
            self.partitions.closed, positions, self._settings, self.witnessed_now()
        ):
            # On disk before the file is removed: a power cut must not move a cursor back to removed events.
            stored = stored or self._store_cursors()
            crash_point("collection.before_index")
            try:
                self._drop(partition, reason)
            except apsw.FullError:
                # No room to record the drop: the file is removed first, which makes room for the record.
                self.partitions.remove(partition)
                self._drop(partition, reason, is_removed=True)
            crash_point("collection.after_index")
            self.partitions.remove(partition)
            crash_point("collection.after_unlink")
        self._witnessed.save()
        kept = sum(partition.bytes for partition in self.partitions.closed) + self._settings.partition_bytes
        trim_damaged(self.folder, self._settings.retention_bytes - kept)
        self._count()

    def witnessed_now(self) -> float:
        """The time by which events age: a clock that leaps ages nothing that is kept."""
        return self._witnessed.now()

    def _store_cursors(self) -> bool:
        try:
            os.fsync(self._tail)
            for cursor in list(self._cursors.values()):
                cursor.store()
        except (apsw.Error, OSError) as error:
            # Partitions that every reader has passed may go all the same: on a full disk that makes room.
            self.on_index_error("The cursors could not be stored", error)
            return False
        return True

    def _drop(self, partition: PartitionRange, reason: str, *, is_removed: bool = False) -> None:
        if reason == "passed":
            return
        outcome: Outcome = "dropped_age" if reason == "age" else "dropped_bytes"
        for cursor in list(self._cursors.values()):
            positions = range(cursor.position, partition.end)
            lost = cursor.drop(outcome, positions, is_removed=is_removed)
            self.count_dropped(cursor.row.reader, reason, lost)
        if not self._cursors:
            lost = partition.end - partition.first
            self._index.note("dropped_unread", str(int(self._index.notes("dropped_unread") or 0) + lost))
            self.count_dropped("", reason, lost)

    def _begin_counting(self, reader: str) -> None:
        for reason in DROP_REASONS:
            self._metrics.counter("log_events_dropped").begin(reader, reason)

    def count_dropped(self, reader: str, reason: str, events: int) -> None:
        if events:
            self._metrics.counter("log_events_dropped").add(events, reader, reason)
            by = f"the reader {reader}" if reader else "any reader"
            self._losses.add(f"{by} by {reason}", events)
            if reason == "damage":
                logger.error("%d events were lost to damage before %s finished them.", events, by)
                return
            setting = "log.retention_hours" if reason == "age" else "log.retention_bytes"
            logger.error(
                "%d events were removed before %s finished them: they were over `%s`.", events, by, setting
            )

    # --- readers -------------------------------------------------------------------------------------

    def reader(self, name: str, start: str = "earliest") -> Reader:
        """The reader of this name, at its cursor; a new one begins at `earliest` or `latest`.

        If the index was lost, every reader counts as new and begins at the earliest event, since its finished
        positions are no longer known.
        """

        def begin() -> Cursor:  # between two commits, so that nothing is collected under it
            if (cursor := self._cursors.get(name)) is None:
                first = self.partitions.ranges[0].first if self.partitions.ranges else self.end
                latest = start == "latest" and self._index.notes("rebuilt") is None
                position = self.end if latest else first
                cursor = Cursor(self._index, CursorRow(name, position, position))
                cursor.store()
                self._cursors[name] = cursor
                self._begin_counting(name)
            return cursor

        with self.classified():
            return Reader(self, self._cursors.get(name) or self._group_commit.call(begin))

    @property
    def readers(self) -> list[str]:
        """The names of all readers that have a cursor, also of those that nothing reads by any more."""
        return sorted(self._cursors)

    def forget(self, name: str) -> None:
        """Remove a reader's cursor, so that it no longer prevents collection."""
        if (cursor := self._cursors.get(name)) is not None:
            with self.classified():
                cursor.forget()
            del self._cursors[name]

    def rename(self, reader: str, name: str) -> None:
        """Give the cursor of a reader another name, which none may have; the reader must not be in use."""
        cursor = self._cursors[reader]
        assert name not in self._cursors
        with self.classified():
            cursor.store()
            self._index.rename(reader, name)
        del self._cursors[reader]
        row = next(row for row in self._index.cursors() if row.reader == name)
        self._cursors[name] = Cursor(self._index, row)
        self._begin_counting(name)

    def repair(self, partition: PartitionRange, error: Exception) -> None:
        """Set a damaged partition aside and keep what can still be read of it (G9)."""
        with self.classified():
            self._group_commit.call(lambda: self.partitions.repair(partition, error))
        self._count()

    def received_at(self, position: int) -> float:
        """When the event at the position was received."""
        if (partition := self.partitions.at(position)) is None:
            return self.clock.now()
        return received_at(partition, position, closed=self.partitions.is_closed(partition), vfs=self._vfs)

    def age_seconds(self, position: int, received_at: float | None = None) -> float:
        """For how long the event has been in the log, by the steady clock as far as this process knows it.

        `received_at` is when it was received, if the caller has it.
        """
        now = self.clock.monotonic()
        if (appended_at := self._append_times.of(position)) is not None:
            return max(0.0, now - appended_at)
        at = self.received_at(position) if received_at is None else received_at
        # a clock that was wrong may have dated it in the future: it is as old as this process at least
        return max(0.0, self._witnessed.latest() - at, now - self._opened_at)

    # --- state ---------------------------------------------------------------------------------------

    def stat(self) -> LogStat:
        """The current figures of the log."""
        end = self.end  # before the ranges, which a commit changes first
        ranges = list(self.partitions.ranges)
        if ranges:  # a copy, since only the writer's thread may change the last one
            ranges[-1] = copy(ranges[-1])
            ranges[-1].bytes = disk_bytes(ranges[-1].path)
        with self._index.lock:  # not while partitions are read, which would hold up the outlets
            rows = [copy(cursor.row) for cursor in self._cursors.values()]
            in_memory = [row.reader for row in rows if doomed(self._index, row.reader)]
            unread = int(self._index.notes("dropped_unread") or 0)
        return summarise(
            ranges,
            rows,
            self.end,
            damaged=damaged_file_names(self.folder),
            dropped_unread=unread,
            running=True,
            lag_seconds=lambda row: self.age_seconds(row.position),
            tail=end,
            in_memory=in_memory,
            clock_ahead_seconds=self._witnessed.ahead_seconds,
        )

    def trouble(self) -> list[str]:
        """Why an operator must look: losses of the last hour, and files that were set aside as damaged."""
        lost = [f"{events} for {what}" for what, events in self._losses.recent().items()]
        found = [f"events were dropped: {', '.join(lost)}; see `headwater status`"] * bool(lost)
        if self._damaged:
            files = f"{self._damaged} damaged file(s) in {self.folder / 'damaged'}"
            found.append(f"{files}; see `headwater log verify`, and move them away when they are examined")
        return found

    def classify(self, error: Exception) -> LogError:
        return error if isinstance(error, LogError) else sqlite.classify(error, self.folder)

    @contextmanager
    def classified(self) -> Iterator[None]:
        """Raise errors of SQLite and the disk as LogFull or LogUnavailable."""
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self.classify(error) from error

    def on_index_error(self, text: str, error: Exception) -> None:
        """Log that the index could not be written; if it is damaged, write a new one from memory (G9)."""
        self.log_once_a_minute(text, error)
        lost = isinstance(error, apsw.ConnectionClosedError)  # replacing it had failed before
        if not self._closed and (lost or sqlite.is_damage(error)):
            self._replace_index(error)

    def _replace_index(self, error: Exception) -> None:
        try:
            with self._index.lock:
                self._index.replace(error)
                for cursor in list(self._cursors.values()):
                    cursor.store(whole=True)
        except (apsw.Error, OSError) as again:
            self.log_once_a_minute("The index could not be replaced", again)

    def log_once_a_minute(self, text: str, error: Exception) -> None:
        """Log the same error once a minute, not a thousand times a second."""
        now = self.clock.monotonic()
        if now - self._logged_at.get(text, -LOG_AGAIN_SECONDS) >= LOG_AGAIN_SECONDS:
            self._logged_at[text] = now
            logger.error("%s: %s: %s", text, type(error).__name__, error)

    def _bytes(self) -> int:
        """The size on disk now, with that of the partition which is being written."""
        ranges = self.partitions.ranges
        last = disk_bytes(ranges[-1].path) if ranges else 0
        return sum(partition.bytes for partition in ranges[:-1]) + last

    def _count(self) -> None:
        self.partitions.measure()
        self._metrics.gauge("log_partitions").set(len(self.partitions.ranges))
        self._damaged = len(damaged_file_names(self.folder))
        self._metrics.gauge("log_damaged_files").set(self._damaged)

    def close(self) -> None:
        """Accept nothing new, commit and answer pending appends, close the files, unlock the folder."""
        with self._closing, ExitStack() as last:
            if self._closed:
                return
            self._closed = True
            last.callback(self._lock.release)
            last.callback(os.close, self._tail)
            last.callback(self._index.close)
            self._group_commit.close()
            self.partitions.close_current()
            if not all(cursor.is_stored for cursor in self._cursors.values()):
                self._store_cursors()
            try:
                self._witnessed.save(now=True)
            except OSError as error:
                self.log_once_a_minute("The time could not be stored", error)


def _open_tail(folder: Path) -> int:
    return os.open(folder / "tail", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _state_of(folder: Path) -> tuple[int, int, int] | None:
    """Which folder is on the path, and when an entry of it was last created, renamed or removed."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
