"""One process per folder: two writers would break the order (G2)."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from headwater.errors import LogLocked

__all__ = ["FolderLock", "is_locked"]


class FolderLock:
    """An flock on `<folder>/lock`, which the kernel frees when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise LogLocked(
                f"{folder} is in use by {owner}.",
                hint="Stop that process, or give this one a `data_dir` of its own.",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

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
