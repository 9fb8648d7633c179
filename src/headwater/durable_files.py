"""A little space that is set by, so that a server can start on a full disk, answer 507 and drain (G9).

SQLite needs a few pages to open a database at all, even to read it; what is read is what makes room.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

from headwater.errors import LogLocked
from headwater.log.queue.sqlite import sync_folder

__all__ = ["Disk", "FolderLock", "Reserve", "is_locked", "replace"]


class Disk:
    """The machine's own. Every method raises OSError, as the kernel tells it."""

    def write(self, fd: int, data: bytes) -> None:
        """All of it, at the end of the file."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Return when it would survive a power cut."""
        os.fsync(fd)

    def cut(self, fd: int, size: int) -> None:
        """Forget everything beyond `size`."""
        os.ftruncate(fd, size)


def replace(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Give the file this content, wholly or not at all: a crash leaves the old one or the new one."""
    disk = disk or Disk()
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            disk.write(fd, data)
            disk.sync(fd)
        finally:
            os.close(fd)
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


TRIES = 5


PAUSE_SECONDS = 0.02


class FolderLock:
    """An flock on `<folder>/lock`, which the kernel frees when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        for _ in range(TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(PAUSE_SECONDS)  # whoever only looks (`is_locked`) holds it for a moment
        else:
            owner = os.pread(self._fd, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise LogLocked(
                f"{folder} is in use by {owner}.",
                hint="Stop that process, or give this one a `data_dir` of its own.",
            )
        try:
            line = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
            os.ftruncate(self._fd, os.pwrite(self._fd, line, 0))
        except OSError:
            pass  # a full disk: the lock holds without its owner's name

    def release(self) -> None:
        os.close(self._fd)


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder open now."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


RESERVE_BYTES = 512 * 1024  # a shared-memory file of 32 KiB and the head of a WAL, for each database


class Reserve:
    """The file `reserve` in the data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"

    def take(self) -> None:
        """Set the space by, unless it is; on a disk that has none, another time."""
        if not self._path.exists():
            with contextlib.suppress(OSError):
                replace(self._path, os.urandom(RESERVE_BYTES))  # zeros may take no space at all

    def give(self) -> bool:
        """Give the space up; whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
