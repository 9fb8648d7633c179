"""A little space that is set by, so that a server can start on a full disk, answer 507 and drain (G9).

SQLite needs a few pages to open a database at all, even to read it; what is read is what makes room.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from headwater.log.disk import replace

__all__ = ["Reserve"]

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
