"""Reads a log from outside its process, beside a running server or without one: no lock, no change."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec
from msgspec.structs import asdict

from headwater.events import Event
from headwater.log.leap_safe_clock import ahead_seconds
from headwater.log.queue import partition_file
from headwater.log.queue.commit_format import Commit
from headwater.log.queue.cursors import CursorRow, Index, doomed
from headwater.log.queue.partition_file import PartitionRange, PartitionReader, partition_paths
from headwater.log.queue.sqlite import damaged_file_names, is_damage
from headwater.system.durable_files import is_locked


class PartitionStat(msgspec.Struct):
    """One file: positions `first` up to and without `end`."""

    first: int
    end: int
    bytes: int
    first_at: float
    last_at: float


class ReaderStat(msgspec.Struct):
    """One reader; `appended` equals the sum of everything that follows `position` up to `lag_events` (G3)."""

    name: str
    base: int
    position: int
    appended: int
    delivered: int
    rejected: int
    dropped_age: int
    dropped_bytes: int
    dropped_damage: int
    lag_events: int
    lag_seconds: float


class LogStat(msgspec.Struct):
    """The figures of a whole log: its partitions, readers and damaged files."""

    first: int
    end: int
    bytes: int
    partitions: list[PartitionStat]
    readers: list[ReaderStat]
    damaged: list[str]
    dropped_unread: int
    running: bool
    clock_ahead_seconds: float
    """By how much the clock has leapt ahead; until the leap is believed, no event ages by it."""


class Finding(msgspec.Struct, frozen=True):
    """A problem that `verify` found in a file."""

    file: str
    text: str


def summarise(
    ranges: Sequence[PartitionRange],
    cursors: Sequence[CursorRow],
    end: int,
    *,
    damaged: list[str],
    dropped_unread: int,
    running: bool,
    lag_seconds: Callable[[CursorRow], float],
    tail: int,
    in_memory: Collection[str] = (),
    clock_ahead_seconds: float = 0.0,
) -> LogStat:
    """Compute the figures of a log. `in_memory` are readers that hold events of removed partitions."""
    readers = []
    for row in cursors:
        appended = max(end - row.base, row.finished)
        waiting = appended - row.finished
        counts = {name: value for name, value in asdict(row).items() if name != "reader"}
        seconds = lag_seconds(row) if waiting else 0.0
        readers.append(
            ReaderStat(name=row.reader, appended=appended, lag_events=waiting, lag_seconds=seconds, **counts)
        )
    return LogStat(
        first=ranges[0].first if ranges else end,
        end=end,
        bytes=sum(partition.bytes for partition in ranges),
        partitions=[PartitionStat(x.first, x.end, x.bytes, x.first_at, x.last_at) for x in ranges],
        readers=readers,
        damaged=damaged + gaps(ranges, [row for row in cursors if row.reader not in in_memory], tail),
        dropped_unread=dropped_unread,
        running=running,
        clock_ahead_seconds=clock_ahead_seconds,
    )


def gaps(ranges: Sequence[PartitionRange], cursors: Sequence[CursorRow], end: int) -> list[str]:
    """The positions below `end` that no partition holds, except those that every reader has passed.

    A power cut may bring a collected partition back, and not its neighbour: no event is lost by that.
    """
    passed = min((row.position for row in cursors), default=0)
    held = [(passed, passed), *((partition.first, partition.end) for partition in ranges), (end, end)]
    return [
        f"positions {before} to {after - 1} are missing"
        for (_, before), (after, _) in pairwise(held if passed else held[1:])
        if before < after and after > passed
    ]


def stat(folder: Path) -> LogStat:
    """The figures of the log, read from its files."""
    # The tail first: events that are appended while the partitions are read are not missing.
    ranges, damaged, tail = [], damaged_file_names(folder), tail_of(folder)
    paths = partition_paths(folder)
    for path in paths:
        try:
            ranges.append(partition_file.inspect(path, closed=path != paths[-1], looking=True))
        except (apsw.Error, ValueError) as error:
            if path.exists():  # else it was collected meanwhile
                damaged.append(f"{path.name}: {error}")
    for before, after in pairwise(ranges):
        before.end = min(before.end, after.first)  # what failed and yet reached the disk does not count
    cursors: list[CursorRow] = []
    in_memory: list[str] = []
    unread = highest = 0
    try:
        index = Index(folder / "index.db", reader=True)
    except apsw.CantOpenError:
        pass  # no reader was ever opened here
    except (apsw.Error, ValueError) as error:
        damaged.append(f"index.db: {error}")
    else:
        cursors, unread = index.cursors(), int(index.notes("dropped_unread") or 0)
        in_memory = [row.reader for row in cursors if doomed(index, row.reader)]
        highest = max((row.position for row in cursors), default=0)
        index.close()
    end = max([1, tail_of(folder), highest, *(partition.end for partition in ranges)])

    def lag_seconds(row: CursorRow) -> float:
        for partition in ranges:
            if partition.end > row.position:
                at = received_at(partition, row.position, looking=True)
                return max(0.0, time.time() - at)
        return 0.0

    return summarise(
        ranges,
        cursors,
        end,
        damaged=damaged,
        dropped_unread=unread,
        running=is_locked(folder),
        lag_seconds=lag_seconds,
        in_memory=in_memory,
        clock_ahead_seconds=ahead_seconds(folder / "clock"),
        tail=tail,
    )


def received_at(
    partition: PartitionRange,
    position: int,
    *,
    closed: bool = False,
    looking: bool = False,
    vfs: str | None = None,
) -> float:
    """When the event at a position was received; the partition's first time where that cannot be read."""
    try:
        reader = PartitionReader(partition.path, closed=closed, looking=looking, vfs=vfs)
    except apsw.Error:
        return partition.first_at
    try:
        return reader.received_at(position) or partition.first_at
    except (apsw.Error, ValueError):
        return partition.first_at
    finally:
        reader.close()


def tail_line(end: int) -> bytes:
    """The content of `tail`, which the writer writes after each commit: the log's end and a checksum."""
    digits = b"%020d" % end
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def tail_of(folder: Path) -> int:
    """The end of the log by the file `tail`; 0 if it is missing or its checksum is wrong."""
    try:
        with (folder / "tail").open("rb") as file:
            line = file.read(30)
        end = int(line[:20])
    except (OSError, ValueError):
        return 0
    return end if line == tail_line(end) else 0


def export(folder: Path, first: int | None = None, last: int | None = None) -> Iterator[Event]:
    """The events between two positions, both included. Damaged ranges are skipped."""
    for commit in commits(folder, first or 1, None if last is None else last + 1, looking=True):
        for number, body in enumerate(commit.bodies, commit.first):
            yield Event(number, commit.received_at, body)


def commits(folder: Path, first: int, end: int | None = None, *, looking: bool = False) -> Iterator[Commit]:
    """The commits that hold positions from `first` up to and without `end`, cut to them.

    Damaged and collected ranges are skipped; the positions show the gap. `looking` is for a command that
    makes no file; a pipeline, which reads beside a server that may begin to write, does without it.
    """
    position = first
    paths = partition_paths(folder)
    for i, path in enumerate(paths):
        following = int(paths[i + 1].stem) if i + 1 < len(paths) else None
        if following is not None and following <= position:
            continue
        if end is not None and int(path.stem) >= end:
            return
        # a commit that failed and yet reached the disk: its positions are those of the next partition
        limit = min(each for each in (following, end, 1 << 62) if each is not None)
        for commit in _readable(path, position, closed=following is not None, looking=looking):
            start, stop = max(position, commit.first), min(commit.end, limit)
            if start < stop:
                if (start, stop) != (commit.first, commit.end):
                    bodies = commit.bodies[start - commit.first : stop - commit.first]
                    commit = Commit(start, commit.received_at, bodies, commit.epoch)
                yield commit
                position = stop
            if position >= limit:
                break


def verify(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[Finding]:
    """Read everything, check every page and every checksum, and list what is wrong."""
    problems: list[Finding] = []
    tail, paths = tail_of(folder), partition_paths(folder)
    expected: int | None = None
    for done, path in enumerate(paths):
        if progress is not None:
            progress(done, len(paths))
        first = int(path.stem)
        if expected is not None and first > expected:
            problems.append(Finding(path.name, f"positions {expected} to {first - 1} before it are missing"))
        try:
            expected = _verify(path, problems, closed=path != paths[-1])
        except (apsw.Error, ValueError) as error:
            expected = None
            if path.exists():  # else it was collected meanwhile
                problems.append(Finding(path.name, str(error)))
    if expected is not None and expected < tail:
        problems.append(Finding(paths[-1].name, f"positions {expected} to {tail - 1} after it are missing"))
    problems += [Finding(f"damaged/{name}", "was set aside") for name in damaged_file_names(folder)]
    try:
        Index(folder / "index.db", reader=True).close()
    except apsw.CantOpenError:
        pass
    except (apsw.Error, ValueError) as error:
        problems.append(Finding("index.db", str(error)))
    if progress is not None:
        progress(len(paths), len(paths))
    return problems


def _verify(path: Path, problems: list[Finding], *, closed: bool) -> int:
    expected = int(path.stem)
    if partition_file.inspect(path, closed=closed, looking=True).end == expected:
        return expected  # it is being created, or a process died while creating it
    reader = PartitionReader(path, closed=closed, looking=True)
    try:
        problems += [Finding(path.name, text) for text in reader.problems()]
        for commit in reader.commits(0):
            if commit.first > expected:
                problems.append(Finding(path.name, f"positions {expected} to {commit.first - 1} are missing"))
            expected = commit.end
    finally:
        reader.close()
    return expected


def _readable(path: Path, position: int, *, closed: bool, looking: bool) -> Iterator[Commit]:
    try:
        reader = PartitionReader(path, closed=closed, looking=looking)
    except apsw.Error:
        return
    try:
        yield from reader.commits(position)
        return
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):
            raise
    finally:
        reader.close()
    yield from (commit for commit in partition_file.salvage(path, looking=looking) if commit.end > position)
