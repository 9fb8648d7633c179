"""Parts for tests of the event files: a disk that fails, a process that is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from headwater.log.files.checked_lines import LineReader
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, status_path
from headwater.system.durable_files import Disk


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
    """All events of the complete files, in order, each with a line end."""
    return [event + b"\n" for file in EventFolder(folder).rotated_files() for event in events_in(file.path)]


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
    """The events of a complete file, none of whose lines is damaged."""
    reader = LineReader(path)
    events = [line.event for line in reader]
    assert not reader.problem(FileStatus.read(status_path(path)).written)
    return events


def archived_events(folder: Path) -> list[bytes]:
    """The events of all files of the archive, in order."""
    return [event for path in sorted(folder.glob("archive/*/*.gz")) for event in events_in(path)]
