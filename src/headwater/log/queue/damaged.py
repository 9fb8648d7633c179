"""Damaged database files, kept in `damaged/` beside the file that replaces them (G9)."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)


def files_of(path: Path) -> list[Path]:
    """A database file and its companions: the WAL, the shared memory, the journal of its first moments."""
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")]


def damaged_file_names(folder: Path) -> list[str]:
    """The names of the files that were set aside."""
    return sorted(file.name for file in (folder / "damaged").glob("*"))


def trim_damaged(folder: Path, room_bytes: int) -> None:
    """Remove the oldest files that were set aside until the rest fits: evidence is not worth an event."""
    files = sorted((file.stat().st_ctime, file) for file in (folder / "damaged").glob("*"))
    excess = sum(file.stat().st_size for _, file in files) - room_bytes
    for _, file in files:
        if excess <= 0:
            return
        excess -= file.stat().st_size
        log.warning("damaged/%s was removed: with it the log would exceed its limit of bytes.", file.name)
        file.unlink()


def move_to_damaged(path: Path, error: Exception) -> None:
    """Move a damaged database and its WAL to `damaged/`, so that a new one can take its place."""
    log.error("%s is damaged (%s). It was moved to damaged/.", path.name, error)
    for file in files_of(path)[:2]:
        if file.exists():
            file.rename(_place_for(file))
    for file in files_of(path)[2:]:
        file.unlink(missing_ok=True)  # no companion may meet a database that it does not belong to


def copy_to_damaged(path: Path) -> None:
    """Copy a damaged database and its WAL to `damaged/`."""
    for file in files_of(path)[:2]:
        if file.exists():
            shutil.copyfile(file, _place_for(file))


def _place_for(file: Path) -> Path:
    (file.parent / "damaged").mkdir(exist_ok=True)
    name = f"{file.name}.{time.strftime('%Y%m%dT%H%M%S')}"
    place, number = file.parent / "damaged" / name, 0
    while os.path.lexists(place):
        number += 1
        place = place.with_name(f"{name}.{number}")
    return place
