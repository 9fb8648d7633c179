"""Incoming files: the events of a token in one file, on disk before a request is answered (G1).

Each token has a file and a group commit of its own: a thread writes what has gathered, syncs it once, then
answers. A few threads serve all tokens. A file is closed by its age or its size: it gets its final name and
belongs to the pipeline.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.clock import Clock, SystemClock
from headwater.errors import LogClosed, LogError, LogFull, LogLocked, LogUnavailable
from headwater.log.files.archive import finish_archiving
from headwater.log.files.checked_lines import LineReader, LineWriter, Written
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, rotated_name, status_path
from headwater.log.files.subscriptions import Subscriptions
from headwater.log.queue.group_commit import (
    GroupCommit,
    OnCommitted,
    PendingAppend,
    Receipt,
    WriterThread,
)
from headwater.log.queue.sqlite import classify
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.metrics import Metrics
from headwater.settings import DestinationSettings, EventsSettings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import Disk, FolderLock, cut_torn_line, is_same_file, sync_folder

logger = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 4 * 1024 * 1024
WRITERS = 8  # threads of all tokens: they wait for one disk, which syncs so many files at once
ROTATE = "rotate"  # a file whose time says that files which are older be completed now
TICK_SECONDS = 1.0  # how late a file may be closed
FIRST_ROTATION_SECONDS = 5.0  # age at which the first file after a pause is closed; then the gap doubles
LOCK_SECONDS = 2.0  # a pipeline that finishes interrupted work holds the folder for a moment


class Incoming:
    """The writer of incoming files. One process at a time: the folder is locked until that process ends."""

    def __init__(
        self,
        events_dir: Path,
        settings: EventsSettings | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        disk: Disk | None = None,
        lock_seconds: float = LOCK_SECONDS,
        destinations: Iterable[DestinationSettings] | None = None,
    ) -> None:
        """Lock the folder, LogLocked if another process has it, and complete the files of a dead writer.

        The status of each file names those of the `destinations` that want it.
        """
        self.folder = EventFolder(events_dir)
        self.settings = settings or EventsSettings()
        self.clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self.disk = disk or Disk()
        self.folder.make()
        self._lock = FolderLock(self.folder.incoming, wait_seconds=lock_seconds)
        self._lock_guard = threading.Lock()
        self.names = _Names(self.folder)
        try:
            _complete_left_overs(self.folder, self.names, self.clock, self.disk)
            self.subscriptions = self._subscriptions(destinations)
        except BaseException:
            self._lock.release()
            raise
        self._files: dict[str, _TokenFile] = {}
        self._writers = [WriterThread(TICK_SECONDS, f"incoming-{i}") for i in range(WRITERS)]
        self._guard = threading.Lock()
        self._is_closed = False
        for reason in ("full", "io"):
            self.metrics.counter("incoming_commit_errors").begin(reason)
        self.metrics.gauge("incoming_files_waiting").set(lambda: len(self.folder.rotated_files()))

    def append(
        self, token_id: str, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: object
    ) -> None:
        """Append to the token's file, where the events of one call lie next to each other.

        The error, if any, is LogFull, LogUnavailable or LogClosed. An event is one line: ValueError if not.
        """
        if any(b"\n" in body for body in bodies):
            raise ValueError("an event of an incoming file must be a single line")
        self._file(token_id).group_commit.append(bodies, on_committed, receipt)

    def append_wait(self, token_id: str, bodies: Sequence[bytes]) -> None:
        """Append events and wait until they are on disk."""
        receipt = Receipt()
        self.append(token_id, bodies, Receipt.complete, receipt)
        receipt.future.result()

    @property
    def healthy(self) -> bool:
        """Whether no token's last commit failed."""
        return all(file.healthy for file in list(self._files.values()))

    def rotate(self) -> None:
        """Close all files now, so that the pipeline can load their events."""
        for file in list(self._files.values()):
            file.group_commit.call(file.rotate)

    def close(self) -> None:
        """Accept nothing new, commit and answer pending appends, complete the files, unlock the folder."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
        for file in self._files.values():
            file.group_commit.begin_close()  # all at once, so that the threads complete them side by side
        for file in self._files.values():
            file.group_commit.close()
            file.release()
        if self._files:
            sync_folder(self.folder.incoming)
        self._lock.release()

    def require_folder(self) -> None:
        """Take the folder again if it or its lock was removed; LogLocked if another process has it."""
        with self._lock_guard:
            if self._lock.is_held():
                return
            self.folder.make()
            lock = FolderLock(self.folder.incoming, wait_seconds=0.0)
            self._lock.release()
            self._lock = lock
            logger.error("%s was removed or replaced; it was locked again.", self.folder.incoming)

    def _subscriptions(self, destinations: Iterable[DestinationSettings] | None) -> Subscriptions | None:
        if destinations is None:
            return None
        found = Subscriptions.of(destinations)
        try:
            found.save(self.folder.path)
        except OSError as error:
            raise classify(error, self.folder.path) from error
        return found

    def requested_at(self) -> float:
        """When a backup last asked for complete files; 0 if never."""
        try:
            return (self.folder.incoming / ROTATE).stat().st_mtime
        except OSError:
            return 0.0

    def _file(self, token_id: str) -> _TokenFile:
        if (file := self._files.get(token_id)) is not None:
            return file
        with self._guard:
            if self._is_closed:
                raise LogClosed("The event files are being closed.", hint="Send it again.")
            if (file := self._files.get(token_id)) is None:
                writer = self._writers[len(self._files) % WRITERS]
                file = self._files[token_id] = _TokenFile(self, token_id, writer)
                file.group_commit.start()
            return file


class _TokenFile:
    """One token's active file. Only its writer's thread uses it, and `Incoming.close` when that has ended."""

    def __init__(self, owner: Incoming, token_id: str, writer: WriterThread) -> None:
        self._owner = owner
        self._token_id = token_id
        self._path = owner.folder.active(token_id)
        self._fd: int | None = None
        self._size = 0  # what is known to be on disk; anything beyond it was never acknowledged
        self._lines = LineWriter()
        self._is_torn = False
        self._began = 0.0
        self._began_at = 0.0  # by the file system's clock
        self._closed_at: float | None = None  # when the last file was closed
        self._gap_seconds = 0.0  # from the last file to the next
        self._is_stored = True  # the last commit
        self._is_on_path = True
        self.group_commit = GroupCommit(
            self._commit, self._tick, TICK_SECONDS, MAX_COMMIT_BYTES, writer, self._rotate_at_end
        )
        metrics = owner.metrics
        self._events = metrics.counter("incoming_events_appended")
        self._bytes = metrics.counter("incoming_bytes_appended")
        self._errors = metrics.counter("incoming_commit_errors")
        self._seconds = metrics.histogram("incoming_commit_seconds")
        self._rotated = metrics.counter("incoming_files_rotated")

    @property
    def healthy(self) -> bool:
        return self._is_stored and self._is_on_path

    def _commit(self, group: list[PendingAppend]) -> None:
        self.group_commit.run_and_log_errors(self._rotate_if_due)
        data, checksums = self._lines.lines(body for append in group for body in append.bodies)
        began = self._owner.clock.monotonic()
        try:
            self._write(data)
        except (OSError, LogError) as error:
            self._is_stored = False
            failure = error if isinstance(error, LogError) else classify(error, self._owner.folder.incoming)
            self._errors.add(1, "full" if isinstance(failure, LogFull) else "io")
            self.group_commit.run_and_log_errors(self._cut_unacknowledged)
            raise failure from error
        self._is_stored = True
        self._lines.wrote(checksums)
        self._seconds.observe(self._owner.clock.monotonic() - began)
        self._events.add(sum(len(append.bodies) for append in group), self._token_id)
        self._bytes.add(len(data), self._token_id)

    def _write(self, data: bytes) -> None:
        disk = self._owner.disk
        if self._is_torn:
            self._cut_unacknowledged()
        self._follow_path()
        if self._fd is None:
            self._fd = self._create()
            self._size, self._lines = 0, LineWriter()
        if not self._size:
            self._began = self._owner.clock.monotonic()
            self._began_at = os.fstat(self._fd).st_mtime
            sync_folder(self._path.parent)
        crash_point("incoming.before_write")
        self._is_torn = True  # until it is synced; a write may stop half way
        disk.write(self._fd, data)
        crash_point("incoming.after_write")
        disk.sync(self._fd)
        if not is_same_file(self._fd, self._path):
            raise LogUnavailable(
                f"{self._path} was removed while it was written; nothing was acknowledged.",
                hint="Find out which process removed it. Send the event again.",
            )
        self._is_torn = False
        self._size += len(data)
        crash_point("incoming.after_sync")

    def _create(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _tick(self) -> None:
        try:
            self._cut_unacknowledged()
            self._follow_path()
        except (OSError, LogError) as error:
            if self._is_on_path:
                logger.error("Events of %s cannot be stored: %s", self._token_id, error)
            self._is_on_path = False
            return
        self._is_on_path = True
        self._rotate_if_due()

    def _follow_path(self) -> None:
        """Begin a file again if it is not the one on its path any more, and keep what was acknowledged.

        A file that was removed is still open: its events are written to the new one. One that was moved
        keeps them where it is now. A file that took its place is completed like that of a dead writer.
        """
        self._owner.require_folder()
        if self._fd is None or is_same_file(self._fd, self._path):
            return
        is_lost = os.fstat(self._fd).st_nlink == 0 and self._size > 0
        if self._path.exists():
            is_lost = is_lost and not _begins_with(self._path, self._fd, self._size)
            owner = self._owner
            _complete_left_over(
                self._path, self._token_id, owner.names, owner.clock, owner.disk, owner.subscriptions
            )
        if is_lost:
            fresh = self._create()
            try:
                for at in range(0, self._size, MAX_COMMIT_BYTES):
                    part = os.pread(self._fd, min(MAX_COMMIT_BYTES, self._size - at), at)
                    self._owner.disk.write(fresh, part)
                self._owner.disk.sync(fresh)
                sync_folder(self._path.parent)
            except BaseException:
                self._path.unlink(missing_ok=True)
                os.close(fresh)
                raise
            os.close(self._fd)
            self._fd = fresh
            logger.error("%s was removed; its events were written again.", self._path)
        else:
            logger.error("%s was moved or replaced; another file was begun.", self._path)
            self.release()

    def _cut_unacknowledged(self) -> None:
        """Cut off what was not acknowledged; until that succeeds nothing is written behind it."""
        if self._fd is not None and self._is_torn:
            self._owner.disk.cut(self._fd, self._size)
            self._is_torn = False

    def _rotate_if_due(self) -> None:
        """Close the file by its size, or by the time since the previous file.

        The first file after a pause is closed a few seconds after its first event, so that its rows appear
        soon. From file to file that time doubles, up to `rotation_minutes`: a steady flow makes few files.
        """
        if not self._size:
            return
        settings, now = self._owner.settings, self._owner.clock.monotonic()
        longest = settings.rotation_minutes * 60
        first = min(FIRST_ROTATION_SECONDS, longest)
        due, gap = self._began + first, first
        if self._closed_at is not None and self._began - self._closed_at < longest:
            gap = max(first, self._gap_seconds)
            due = max(due, self._closed_at + gap)
        is_requested = self._owner.requested_at() >= self._began_at
        if self._size >= settings.rotation_bytes or now >= due or is_requested:
            self._gap_seconds = min(2 * gap, longest)
            self.rotate()

    def _rotate_at_end(self) -> None:
        self.rotate(sync_name=False)  # one sync is for the names of all tokens

    def rotate(self, *, sync_name: bool = True) -> None:
        """Give the file its final name. What it holds was synced before, so the name is all that changes."""
        if self._fd is None or not self._size:
            return
        self._cut_unacknowledged()
        self._follow_path()
        if self._fd is None:
            return
        crash_point("incoming.before_rotate")
        owner = self._owner
        _complete(
            self._path, self._token_id, owner.names, owner.clock, self._lines.written, owner.subscriptions
        )
        # from here on it belongs to the pipeline; nothing may be added, even if the next step fails
        self.release()
        self._closed_at = self._owner.clock.monotonic()
        crash_point("incoming.after_rotate")
        self._rotated.add(1, self._token_id)
        if sync_name:
            sync_folder(self._path.parent)

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._size = 0
            os.close(fd)


def request_rotation(events_dir: Path) -> None:
    """Ask the process that writes event files to complete those that it has begun."""
    path = EventFolder(events_dir).incoming / ROTATE
    path.touch()
    os.utime(path)


def finish_interrupted(events_dir: Path, *, clock: Clock | None = None) -> None:
    """Finish the work of dead processes; a pipeline calls it before it looks for files.

    Active files without a writer are completed; replays and archivings that a crash interrupted are finished.
    The files of a living writer are left alone.
    """
    folder = EventFolder(events_dir)
    folder.make()
    try:
        lock = FolderLock(folder.incoming)
    except LogLocked:
        pass  # the writer lives, and completes its files itself
    else:
        try:
            _complete_left_overs(folder, _Names(folder), clock or SystemClock(), Disk())
        finally:
            lock.release()
    DestinationRejects(events_dir).finish_interrupted()
    finish_archiving(events_dir)


class _Names:
    """Gives complete files their names, later than those that wait, whatever the clock does."""

    def __init__(self, folder: EventFolder) -> None:
        self._folder = folder
        self._newest = self._waiting()

    def _waiting(self) -> dict[str, datetime]:
        return {
            file.token_id: file.rotated_at for file in self._folder.rotated_files() if file.kind == "incoming"
        }

    def next(self, path: Path, token_id: str, clock: Clock) -> Path:
        """The name for the active file `path`, which no other file has."""
        at = datetime.fromtimestamp(clock.now(), UTC)
        newest = self._newest.get(token_id)
        if newest is not None and newest >= at:
            # The clock was set back. To list the folder for each of many files would take too long.
            newest = self._waiting().get(token_id)
            at = at if newest is None else max(at, newest + timedelta(milliseconds=1))
        while (found := path.with_name(rotated_name("incoming", token_id, at))).exists():
            at += timedelta(milliseconds=1)  # it was put there by hand
        self._newest[token_id] = at
        return found


def _complete_left_overs(folder: EventFolder, names: _Names, clock: Clock, disk: Disk) -> None:
    subscriptions = Subscriptions.load(folder.path)  # those of the writer that died
    for token_id, path in folder.active_files().items():
        _complete_left_over(path, token_id, names, clock, disk, subscriptions)
    sync_folder(folder.incoming)


def _complete_left_over(
    path: Path,
    token_id: str,
    names: _Names,
    clock: Clock,
    disk: Disk,
    subscriptions: Subscriptions | None,
) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size, end = cut_torn_line(fd, disk)
        if end < size:
            # whole lines are kept, acknowledged or not; a part of one was never acknowledged
            logger.warning("%s ended in %d bytes of an unfinished write; they were cut.", path, size - end)
        disk.sync(fd)
    finally:
        os.close(fd)
    if end:
        _complete(path, token_id, names, clock, _count_lines(path), subscriptions)
    else:
        path.unlink()


def _begins_with(path: Path, fd: int, size: int) -> bool:
    """Whether a file has the first `size` bytes of an open one."""
    with path.open("rb") as file:
        for at in range(0, size, MAX_COMMIT_BYTES):
            part = os.pread(fd, min(MAX_COMMIT_BYTES, size - at), at)
            if file.read(len(part)) != part:
                return False
    return True


def _count_lines(path: Path) -> Written | None:
    """The lines of a dead writer's file; None for one without checksums, of an earlier release."""
    reader = LineReader(path)
    return reader.read_all() if reader.is_checked else None


def _complete(
    path: Path,
    token_id: str,
    names: _Names,
    clock: Clock,
    written: Written | None,
    subscriptions: Subscriptions | None,
) -> None:
    """Rename an active file.

    The number of its lines is recorded first, and the destinations that want it. A full disk prevents only
    that: the pipeline may make room.
    """
    target = names.next(path, token_id, clock)
    if written is not None or subscriptions is not None:
        status = FileStatus(status_path(target))
        if written is not None:
            status.record_written(written)
        if subscriptions is not None:
            status.record_wanted_by(subscriptions.wanted_by(token_id))
        try:
            status.save()
        except OSError as error:
            logger.error("The number of lines of %s could not be recorded: %s", target.name, error)
    path.rename(target)
