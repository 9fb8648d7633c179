"""Looking at a log from outside, beside a running server or when none runs: no lock, no change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec

from headwater.events import Event
from headwater.log import partitions
from headwater.log.index import CursorRow, Index
from headwater.log.lock import is_locked
from headwater.log.partitions import Extent, PartitionReader
from headwater.log.sqlite import connect, is_damage

__all__ = ["LogStat", "PartitionStat", "Problem", "ReaderStat", "export", "stat", "summarise", "verify"]


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
    """The whole log: what is kept, who reads it, what is damaged."""

    first: int
    end: int
    bytes: int
    partitions: list[PartitionStat]
    readers: list[ReaderStat]
    damaged: list[str]
    dropped_unread: int
    running: bool


class Problem(msgspec.Struct, frozen=True):
    """Something `verify` found: the file and what is wrong with it."""

    file: str
    text: str


def summarise(
    extents: Sequence[Extent],
    cursors: Sequence[CursorRow],
    end: int,
    damaged: list[str],
    dropped_unread: int,
    running: bool,
    lag_seconds: Callable[[CursorRow], float],
) -> LogStat:
    """Put the figures of a log together."""
    readers = []
    for row in cursors:
        appended = max(end - row.base, row.finished)
        waiting = appended - row.finished
        readers.append(
            ReaderStat(
                row.reader,
                row.base,
                row.position,
                appended,
                row.delivered,
                row.rejected,
                row.dropped_age,
                row.dropped_bytes,
                row.dropped_damage,
                waiting,
                lag_seconds(row) if waiting else 0.0,
            )
        )
    gaps = [
        f"positions {before.end} to {after.first - 1} are missing"
        for before, after in pairwise(extents)
        if before.end < after.first
    ]
    return LogStat(
        extents[0].first if extents else end,
        end,
        sum(extent.bytes for extent in extents),
        [PartitionStat(x.first, x.end, x.bytes, x.first_at, x.last_at) for x in extents],
        readers,
        damaged + gaps,
        dropped_unread,
        running,
    )


def stat(folder: Path) -> LogStat:
    """The log's figures, read from its files."""
    extents, damaged = [], [file.name for file in sorted((folder / "damaged").glob("*"))]
    for path in sorted(folder.glob("[0-9]*.db")):
        try:
            extents.append(partitions.inspect(path))
        except (apsw.Error, ValueError) as error:
            damaged.append(f"{path.name}: {error}")
    cursors: list[CursorRow] = []
    unread = 0
    try:
        index = Index(folder / "index.db", reader=True)
    except apsw.CantOpenError:
        pass  # no reader was ever opened here
    except (apsw.Error, ValueError) as error:
        damaged.append(f"index.db: {error}")
    else:
        cursors, unread = index.cursors(), int(index.notes("dropped_unread") or 0)
        index.close()
    end = max([1, tail_of(folder), *(extent.end for extent in extents), *(row.position for row in cursors)])

    def lag_seconds(row: CursorRow) -> float:
        for extent in extents:
            if extent.end > row.position:
                return max(0.0, time.time() - _received_at(extent.path, row.position))
        return 0.0

    return summarise(extents, cursors, end, damaged, unread, is_locked(folder), lag_seconds)


def tail_of(folder: Path) -> int:
    """The end of the log by the note that the writer leaves after each commit; 0 without one."""
    try:
        return int((folder / "tail").read_bytes()[:20])
    except (OSError, ValueError):
        return 0


def export(folder: Path, first: int | None = None, last: int | None = None) -> Iterator[Event]:
    """The events between two positions, both included. Damaged stretches are passed over."""
    position = first or 1
    paths = sorted(folder.glob("[0-9]*.db"))
    for i, path in enumerate(paths):
        following = int(paths[i + 1].stem) if i + 1 < len(paths) else None
        if following is not None and following <= position:
            continue
        for commit in _readable(path, position):
            for number, body in enumerate(commit.bodies, commit.first):
                if last is not None and number > last:
                    return
                if number >= position and (following is None or number < following):
                    yield Event(number, commit.received_at, body)
                    position = number + 1


def verify(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[Problem]:
    """Read everything, check every page and every checksum, and list what is wrong."""
    problems: list[Problem] = []
    paths = sorted(folder.glob("[0-9]*.db"))
    expected: int | None = None
    for done, path in enumerate(paths):
        if progress is not None:
            progress(done, len(paths))
        if expected is not None and int(path.stem) > expected:
            problems.append(
                Problem(path.name, f"positions {expected} to {int(path.stem) - 1} before it are missing")
            )
        try:
            expected = _verify(path, problems)
        except (apsw.Error, ValueError) as error:
            expected = None
            problems.append(Problem(path.name, str(error)))
    problems += [
        Problem(f"damaged/{file.name}", "was set aside") for file in sorted((folder / "damaged").glob("*"))
    ]
    try:
        index = Index(folder / "index.db", reader=True)
        index.close()
    except apsw.CantOpenError:
        pass
    except (apsw.Error, ValueError) as error:
        problems.append(Problem("index.db", str(error)))
    if progress is not None:
        progress(len(paths), len(paths))
    return problems


def _verify(path: Path, problems: list[Problem]) -> int:
    connection = connect(path, reader=True)
    try:
        for (text,) in connection.execute("PRAGMA quick_check"):
            if text != "ok":
                problems.append(Problem(path.name, text))
    finally:
        connection.close()
    expected = int(path.stem)
    reader = PartitionReader(path)
    try:
        for commit in reader.commits(0):
            if commit.first > expected:
                problems.append(Problem(path.name, f"positions {expected} to {commit.first - 1} are missing"))
            expected = commit.end
    finally:
        reader.close()
    return expected


def _readable(path: Path, position: int) -> Iterator[partitions.Commit]:
    try:
        reader = PartitionReader(path)
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
    yield from (commit for commit in partitions.salvage(path) if commit.end > position)


def _received_at(path: Path, position: int) -> float:
    reader = PartitionReader(path)
    try:
        for commit in reader.commits(position):
            return commit.received_at
    except (apsw.Error, ValueError):
        pass
    finally:
        reader.close()
    return time.time()
