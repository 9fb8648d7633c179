"""Opening a folder in spite of damage (G9): what cannot be used is set aside, the rest is served."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec

from headwater.log.queue import partition_file
from headwater.log.queue.commit_format import Commit, Packer
from headwater.log.queue.cursors import Index, doomed
from headwater.log.queue.offline import gaps, tail_of
from headwater.log.queue.partition_file import PartitionRange, PartitionWriter, partition_paths
from headwater.log.queue.sqlite import copy_to_damaged, files_of, is_damage, move_to_damaged, remove_database
from headwater.system.durable_files import sync_file, sync_folder

logger = logging.getLogger(__name__)

REPAIR_NAME = "repair.tmp"
REPAIRED = ".repaired"


class RecoveredLog(msgspec.Struct, frozen=True):
    """A recovered folder: its partitions in order, its index, and the position of the next event."""

    ranges: list[PartitionRange]
    index: Index
    end: int


def recover(folder: Path, *, vfs: str | None = None) -> RecoveredLog:
    """Look at every partition and at the index; repair or set aside what is damaged."""
    remove_database(folder / REPAIR_NAME)
    for repaired in folder.glob(f"*{REPAIRED}"):
        _install(repaired)
    ranges: list[PartitionRange] = []
    for path in partition_paths(folder):
        try:
            partition: PartitionRange | None = partition_file.inspect(path, closed=True, vfs=vfs)
        except (apsw.Error, ValueError) as error:
            if not is_damage(error):
                raise
            partition = repair(path, error, vfs=vfs)
        if partition is not None:
            ranges.append(partition)
    for before, after in pairwise(ranges):
        # A commit that failed, was answered with an error and yet reached the disk: its positions were
        # given out again, in the next partition, which is the one that counts.
        before.end = min(before.end, after.first)
    if ranges:
        _sync(ranges[-1].path)
    index = _open_index(folder, vfs)
    # After damage the highest known position counts: a position is never given out twice.
    end = max([1, tail_of(folder), index.highest(), *(partition.end for partition in ranges)])
    cursors = index.cursors()
    passed = min((row.position for row in cursors), default=0)
    _finish_collection(ranges, end, passed)
    _clear_orphans(folder, [*(partition.first for partition in ranges), end], passed)
    for text in gaps(ranges, [row for row in cursors if not doomed(index, row.reader)], end):
        logger.error("The log has a gap: %s.", text)
    return RecoveredLog(ranges, index, end)


def repair(path: Path, error: Exception, *, vfs: str | None = None) -> PartitionRange | None:
    """Set a damaged partition aside; replace it by its readable commits, if there are any.

    Whenever the process dies in the middle, the next one finds the old files or the whole of the new one.
    """
    fresh, events = _copy(path, partition_file.salvage(path, vfs=vfs), vfs)
    logger.error("%d events of %s can still be read.", events, path.name)
    if not events:
        remove_database(fresh)
        move_to_damaged(path, error)
        return None
    copy_to_damaged(path)
    logger.error("%s is damaged (%s). It was copied to damaged/ and replaced.", path.name, error)
    _install(fresh.rename(path.with_suffix(REPAIRED)))
    return partition_file.inspect(path, closed=True, vfs=vfs)


def restore(path: Path, commits: Iterator[Commit], *, vfs: str | None = None) -> PartitionRange:
    """Write a partition again whose file was removed, from the connection that still has it open."""
    fresh, events = _copy(path, commits, vfs)
    logger.error("%s was removed or replaced; its %d events were written again.", path.name, events)
    _install(fresh.rename(path.with_suffix(REPAIRED)))
    return partition_file.inspect(path, closed=True, vfs=vfs)


def _copy(path: Path, commits: Iterator[Commit], vfs: str | None) -> tuple[Path, int]:
    """Write commits to a new file, one at a time (G8); returns it, and the number of events."""
    fresh = path.parent / REPAIR_NAME
    remove_database(fresh)
    writer, packer = PartitionWriter(fresh, vfs=vfs, limit_bytes=1 << 30), Packer()
    events = 0
    try:
        for commit in commits:
            packed = packer.pack(commit.first, commit.received_at, commit.bodies, commit.epoch)
            writer.insert(commit.first, len(commit.bodies), commit.received_at, packed)
            events += len(commit.bodies)
    finally:
        writer.close()
    return fresh, events


def _install(repaired: Path) -> None:
    """Put a repaired partition into the place of the damaged one."""
    path = repaired.with_suffix(".db")
    for file in files_of(path)[1:]:
        file.unlink(missing_ok=True)  # a WAL must never meet a database that it does not belong to
    repaired.rename(path)
    sync_folder(path.parent)


def _finish_collection(ranges: list[PartitionRange], end: int, passed: int) -> None:
    """Remove what lies before a hole that every reader has passed.

    It was collected, and a power cut brought it back without its neighbour; no new reader may begin there.
    """
    for i in range(len(ranges), 0, -1):
        following = ranges[i].first if i < len(ranges) else end
        if ranges[i - 1].end < following <= passed:
            for partition in ranges[:i]:
                remove_database(partition.path)
            del ranges[:i]
            return


def _sync(path: Path) -> None:
    """Sync a partition: what a killed process wrote may be in the system's memory only."""
    for file in files_of(path)[:2]:
        if file.exists():
            sync_file(file)


def _clear_orphans(folder: Path, firsts: list[int], passed: int) -> None:
    """Clear companions of missing databases: leftovers of a collection, or the rest of a lost partition."""
    for shm in folder.glob("*.db-shm"):
        if not Path(str(shm).removesuffix("-shm")).exists():
            shm.unlink()
    for wal in folder.glob("[0-9]" * 20 + ".db-wal"):
        database = Path(str(wal).removesuffix("-wal"))
        if database.exists():
            continue
        position = int(database.stem)
        following = next((first for first in firsts if first > position), position)
        # Removal is from the old end, so a crash or a power cut may have come between two unlinks.
        older = len(firsts) > 1 and position < firsts[0]
        if wal.stat().st_size == 0 or older or following <= passed:
            wal.unlink()
        else:
            move_to_damaged(database, FileNotFoundError("the database file itself is gone"))


def _open_index(folder: Path, vfs: str | None) -> Index:
    path = folder / "index.db"
    if not path.exists() and files_of(path)[1].exists():
        move_to_damaged(path, FileNotFoundError("the database file itself is gone"))
    try:
        index = Index(path, vfs=vfs)
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):
            raise
        move_to_damaged(path, error)
        index = Index(path, vfs=vfs)
    if index.is_new and partition_paths(folder):
        logger.error("index.db was lost: every reader starts again at the oldest event that is kept.")
        index.note("rebuilt", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    return index
