"""Files that survive a crash and a power cut: fsync, write-then-rename, torn lines, locks, reserved space."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headwater.errors import LogLocked

STEP_BYTES = 64 * 1024
LOCK_TRIES = 5
LOCK_PAUSE_SECONDS = 0.02
RESERVE_BYTES = 512 * 1024  # a shared-memory file of 32 KiB and the head of a WAL, for each database
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")

# Called with each synced folder: tests that simulate a power cut must know which names are durable.
folder_watchers: list[Callable[[Path], None]] = []


class Disk:
    """Writes to an open file; tests replace it by one that fails. Every method raises OSError."""

    def write(self, fd: int, data: bytes) -> None:
        """Write all of the data at the end of the file."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Return when the content survives a power cut."""
        os.fsync(fd)

    def cut(self, fd: int, size: int) -> None:
        """Remove everything beyond `size`."""
        os.ftruncate(fd, size)


def sync_folder(folder: Path) -> None:
    """Make the creation, renaming or removal of files in the folder durable."""
    sync_file(folder)
    for watcher in folder_watchers:
        watcher(folder)


def sync_file(path: Path) -> None:
    """Make the content of a file durable, also if another process wrote it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents; their names survive a power cut."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(0o700, parents=True, exist_ok=True)  # events may be confidential
    for each in missing:
        sync_folder(each.parent)


# --- files that are removed or replaced while they are open -------------------------------------------

Identity = tuple[int, int]


def identity(path: Path | int) -> Identity | None:
    """Which file a path (or an open file) names now, as device and inode; None if there is none.

    The system gives the inode of an open file to no other file.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def is_same_file(fd: int, path: Path) -> bool:
    """Whether the path still names the open file: else it was removed or replaced.

    What is written to a removed file is gone when the process ends. Costs about 2 microseconds.
    """
    return identity(fd) == identity(path)


# --- whole files --------------------------------------------------------------------------------------


def replace(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Replace the content of a file atomically: a crash leaves the old content or the new."""
    disk = disk or Disk()
    with replacing(path, disk) as file:
        disk.write(file.fileno(), data)


@contextmanager
def replacing(path: Path, disk: Disk | None = None) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end of the block, durably; not after an error."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            (disk or Disk()).sync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


# --- files of lines -----------------------------------------------------------------------------------


def one_line(json: bytes) -> bytes:
    """JSON without line breaks: outside of strings they are white space, inside they are not allowed."""
    return json.translate(_LINE_BREAKS) if b"\n" in json or b"\r" in json else json


def cut_torn_line(fd: int, disk: Disk | None = None) -> tuple[int, int]:
    """Cut a last line without an end: its write was never reported. Returns the sizes before and after."""
    size = end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - STEP_BYTES)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        (disk or Disk()).cut(fd, end)
    return size, end


# --- locks --------------------------------------------------------------------------------------------


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Whether this process has the flock of the file now; the kernel frees it when the process dies."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock of a file, which is created if it is missing, and hold it during the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if is_same_file(fd, path):  # else it was removed while this process waited
                yield
                return
        finally:
            os.close(fd)


class FolderLock:
    """An flock on `<folder>/lock`; LogLocked if another process has it.

    A lock whose file is removed excludes no other process, so its owner asks `is_held` from time to time.
    """

    def __init__(self, folder: Path, wait_seconds: float = LOCK_TRIES * LOCK_PAUSE_SECONDS) -> None:
        """`wait_seconds` covers processes that hold the lock for a moment only, such as `is_locked`."""
        self._folder = folder
        self.path = folder / "lock"
        self._fd = self._open()
        deadline = time.monotonic() + wait_seconds
        while not self._lock():
            if time.monotonic() >= deadline:
                owner = os.pread(self._fd, 200, 0).decode(errors="replace").strip() or "another process"
                os.close(self._fd)
                raise LogLocked(
                    f"{folder} is in use by {owner}.",
                    hint="Stop that process, or give this one another `data_dir`.",
                )
            time.sleep(LOCK_PAUSE_SECONDS)
        self._folder_identity = identity(folder)

    def is_held(self) -> bool:
        """Whether the folder is the one that was locked, and its lock is still the one of this process.

        A lock file that was removed is created and locked again, if no other process was faster.
        """
        if is_same_file(self._fd, self.path):
            return True
        if self._folder_identity != identity(self._folder) or self.path.exists():
            return False
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        return self._lock()

    def release(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _lock(self) -> bool:
        """Whether this process has the lock now, and the path names the locked file.

        The lock of a file that was removed excludes no other process: then the next try is with the new file.
        """
        if not try_lock(self._fd):
            return False
        if not is_same_file(self._fd, self.path):
            fresh = self._open()
            os.close(self._fd)
            self._fd = fresh
            return self._lock()
        try:
            line = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
            os.ftruncate(self._fd, os.pwrite(self._fd, line, 0))
        except OSError:
            pass  # a full disk: the lock holds without its owner's name
        return True


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder open now."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def owner_of(folder: Path) -> int | None:
    """The process of this machine that has the folder open now."""
    if not is_locked(folder):
        return None
    found = re.fullmatch(r"process (\d+) on (.*)\n", (folder / "lock").read_text(encoding="utf-8"))
    return int(found[1]) if found is not None and found[2] == socket.gethostname() else None


class DiskReserve:
    """Reserves 512 KiB, so that the server can start, answer 507 and deliver when the disk is full (G9).

    SQLite needs a few pages to open a database, even for reading, and only reading its events makes room.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"

    def allocate(self) -> None:
        """Reserve the space if it is not reserved yet; a full disk leaves that to a later start."""
        if not self._path.exists():
            with contextlib.suppress(OSError):
                replace(self._path, os.urandom(RESERVE_BYTES))  # zeros may take no space at all

    def release(self) -> bool:
        """Free the space; return whether any was reserved."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
