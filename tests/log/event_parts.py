"""Parts for tests of the event files: a disk that fails, a process that is killed."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from headwater.durable_files import Disk
from headwater.log.files.layout import EventFolder


class FullDisk(Disk):
    """Takes `room` bytes and then no more; `breaks_sync` makes fsync fail, `keeps` makes cutting fail."""

    def __init__(self, room: int = 2**40) -> None:
        self.room = room
        self.breaks_sync = False
        self.keeps = False

    def write(self, fd: int, data: bytes) -> None:
        if len(data) > self.room:
            super().write(fd, data[: self.room])
            self.room = 0
            raise OSError(errno.ENOSPC, "no space left")
        self.room -= len(data)
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        if self.breaks_sync:
            raise OSError(errno.EIO, "the disk is broken")
        super().sync(fd)

    def cut(self, fd: int, size: int) -> None:
        if self.keeps:
            raise OSError(errno.EIO, "the disk is broken")
        super().cut(fd, size)


def lines(folder: Path) -> list[bytes]:
    """All lines of the complete files, in order."""
    return [
        line
        for file in EventFolder(folder).rotated_files()
        for line in file.path.read_bytes().splitlines(True)
    ]


def killed(code: str, *arguments: str, at: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own that dies at a crash point; it must have died there."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=os.environ | {"HEADWATER_CRASH_POINT": at},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done


def events_in(path: Path) -> list[bytes]:
    """The events of a complete file."""
    return path.read_bytes().split(b"\n")[:-1]


def archived_events(folder: Path) -> list[bytes]:
    """The events of all files of the archive, in order."""
    return [
        line
        for path in sorted(folder.glob("archive/*/*.gz"))
        for line in gzip.decompress(path.read_bytes()).split(b"\n")[:-1]
    ]
