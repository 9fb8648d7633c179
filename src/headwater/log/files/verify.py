"""Reads every stored event file: each line against its checksum, the number of lines against the record."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.log.files.checked_lines import LineReader
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, archived_files, status_path


class VerifiedFile(NamedTuple):
    """A file as it was read. Without checksums, from an earlier release, only its lines are counted."""

    path: Path
    lines: int
    damaged: int
    is_checked: bool
    problem: str


def verify_events(events_dir: Path) -> Iterator[VerifiedFile]:
    """All files, one after the other: being written, complete, archived, rejects of destinations.

    Only reads, so it may run beside other processes; a file that they archive meanwhile is read in its place
    there, or not at all.
    """
    folder = EventFolder(events_dir)
    growing = [*folder.active_files().values(), *folder.error_files().values()]
    complete = [
        *(file.path for file in folder.rotated_files()),
        *(f.path for f in archived_files(events_dir)),
    ]
    for path in growing:
        yield from _verify(path, FileStatus(path), is_growing=True)
    for path in complete:
        yield from _verify(path, FileStatus.read(status_path(path)), is_growing=False)


def _verify(path: Path, status: FileStatus, *, is_growing: bool) -> Iterator[VerifiedFile]:
    is_checked = True if status.written is not None else None
    try:
        reader = LineReader(path, is_checked=is_checked, leaves_torn=is_growing)
    except FileNotFoundError:
        return
    except (OSError, EOFError, zlib.error) as error:
        yield VerifiedFile(path, 0, 0, True, f"it cannot be read: {error}")
        return
    unreadable = ""
    try:
        for _ in reader:
            pass
    except (OSError, EOFError, zlib.error) as error:
        unreadable = f"it cannot be read beyond line {reader.lines}: {error}"
    problem = unreadable or reader.problem(status.written)
    if status.is_damaged and not problem:
        problem = "its status file is damaged, so the number of its lines is not known"
    yield VerifiedFile(path, reader.lines, reader.damaged, reader.is_checked, problem)
