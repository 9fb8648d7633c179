"""One process per folder: two writers would break the order (G2)."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

from headwater.errors import LogLocked

__all__ = ["FolderLock", "is_locked"]

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
