"""Opening a folder in spite of damage (G9): what cannot be used is set aside, the rest is served."""

from __future__ import annotations

import logging
import shutil
import time
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec

from headwater.log import partitions
from headwater.log.index import Index
from headwater.log.inspect import tail_of
from headwater.log.packing import Packer
from headwater.log.partitions import Extent, PartitionWriter, files_of
from headwater.log.sqlite import is_damage, sync_folder

__all__ = ["Found", "recover", "repair", "set_aside", "set_file_aside"]

log = logging.getLogger(__name__)

REPAIR_NAME = "repair.tmp"


class Found(msgspec.Struct, frozen=True):
    """What a folder holds: its partitions in order, its index, and the position of the next event."""

    extents: list[Extent]
    index: Index
    end: int


def recover(folder: Path, *, vfs: str | None = None) -> Found:
    """Look at every partition and at the index; repair or set aside what is damaged."""
    for file in files_of(folder / REPAIR_NAME):
        file.unlink(missing_ok=True)
    _set_orphans_aside(folder)
    extents: list[Extent] = []
    for path in sorted(folder.glob("[0-9]*.db")):
        try:
            extent: Extent | None = partitions.inspect(path, vfs=vfs)
        except Exception as error:
            if not is_damage(error):
                raise
            extent = repair(path, error, vfs=vfs)
        if extent is not None:
            extents.append(extent)
    for before, after in pairwise(extents):
        # A commit that failed, was answered with an error and yet reached the disk: its positions were
        # given out again, in the next partition, which is the one that counts.
        before.end = min(before.end, after.first)
        if before.end < after.first:
            log.error("Positions %d to %d are missing from the log.", before.end, after.first - 1)
    index = _open_index(folder, vfs)
    # After damage the highest position that anybody knows of counts: a position is never given out twice.
    known = [1, tail_of(folder), *(row.position for row in index.cursors())]
    end = max([*known, *(extent.end for extent in extents)])
    if extents and end > extents[-1].end:
        log.error("Positions %d to %d are missing from the log's end.", extents[-1].end, end - 1)
    return Found(extents, index, end)


def repair(path: Path, error: Exception, *, vfs: str | None = None) -> Extent | None:
    """Keep a copy of a damaged partition aside; replace it by what can still be read, if anything can."""
    commits = partitions.salvage(path, vfs=vfs)
    log.error(
        "Partition %s is damaged (%s). It was copied to %s; %d events of it could be read and stay.",
        path.name,
        error,
        "damaged/",
        sum(len(commit.bodies) for commit in commits),
    )
    fresh = path.parent / REPAIR_NAME
    if commits:
        writer, packer = PartitionWriter(fresh, vfs=vfs, limit_bytes=1 << 30), Packer()
        for commit in commits:
            writer.insert(commit.first, len(commit.bodies), commit.received_at, packer.pack(commit.bodies))
        writer.close()
    for file in files_of(path)[:2]:
        _set_aside(file, keep=commits != [] and file == path)
    for file in files_of(path)[1:]:
        file.unlink(missing_ok=True)  # a WAL must never meet a database that it does not belong to
    if not commits:
        return None
    fresh.replace(path)
    sync_folder(path.parent)
    return partitions.inspect(path, vfs=vfs)


def set_aside(folder: Path) -> list[str]:
    """The names of the files that were set aside."""
    return sorted(file.name for file in (folder / "damaged").glob("*"))


def set_file_aside(path: Path, error: Exception) -> None:
    """Move a damaged database and its WAL to `damaged/` beside it, so that a new one can take its place."""
    log.error("%s is damaged (%s). It was moved to damaged/.", path.name, error)
    for file in files_of(path)[:2]:
        _set_aside(file)
    files_of(path)[2].unlink(missing_ok=True)


def _set_aside(file: Path, *, keep: bool = False) -> None:
    if not file.exists():
        return
    (file.parent / "damaged").mkdir(exist_ok=True)
    place = file.parent / "damaged" / f"{file.name}.{time.strftime('%Y%m%dT%H%M%S')}"
    number = 0
    while place.exists():
        number += 1
        place = place.with_name(f"{file.name}.{time.strftime('%Y%m%dT%H%M%S')}.{number}")
    shutil.copyfile(file, place) if keep else file.rename(place)


def _set_orphans_aside(folder: Path) -> None:
    for wal in folder.glob("*.db-wal"):
        if not Path(str(wal).removesuffix("-wal")).exists():
            log.error("The database file of %s is gone; it was moved to damaged/.", wal.name)
            _set_aside(wal)


def _open_index(folder: Path, vfs: str | None) -> Index:
    path = folder / "index.db"
    missing = not path.exists() and any(folder.glob("[0-9]*.db"))
    try:
        index = Index(path, vfs=vfs)
    except (apsw.Error, ValueError) as error:
        if not is_damage(error) and not isinstance(error, apsw.SQLError):
            raise
        set_file_aside(path, error)
        log.error("Without index.db every reader starts again at the oldest event that is kept.")
        index, missing = Index(path, vfs=vfs), True
    if missing:
        index.note("rebuilt", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    return index
