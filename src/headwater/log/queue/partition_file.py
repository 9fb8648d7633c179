"""One partition file: commits in SQLite, written once, read by position."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from headwater.log.queue.commit_format import Commit, unpack
from headwater.log.queue.sqlite import (
    check_version,
    connect,
    files_of,
    is_damage,
    look,
    migrate,
    remove_database,
    select,
    typed,
)
from headwater.system.crash_points import crash_point, is_armed
from headwater.system.durable_files import identity, sync_folder

PAGE_BYTES = 16 * 1024  # measured against 4 KiB: about twice the appended events per second
CHECKPOINT_PAGES = 256  # 4 MiB of WAL: a checkpoint every few seconds under full load


class PartitionRange(msgspec.Struct):
    """A partition's positions, from `first` up to and without `end`, and when they were received."""

    path: Path
    first: int
    end: int
    first_at: float
    last_at: float
    bytes: int


def _create_commits(connection: apsw.Connection) -> None:
    connection.execute(
        "CREATE TABLE commits(first INTEGER PRIMARY KEY, count INTEGER NOT NULL,"
        " received_at REAL NOT NULL, bodies BLOB NOT NULL) STRICT"
    )


def _epochs(connection: apsw.Connection) -> None:
    """Commits of this version may have an epoch, which earlier releases would take for damage."""


MIGRATIONS = (_create_commits, _epochs)
COLUMNS = "first, count, received_at, bodies"


def partition_path(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.db"


def partition_paths(folder: Path) -> list[Path]:
    """The partitions of a folder in order. A file of any other name is not ours."""
    return sorted(folder.glob("[0-9]" * 20 + ".db"))


def disk_bytes(path: Path) -> int:
    total = 0
    for file in files_of(path)[:2]:  # the -shm file is memory, not storage
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def is_whole(path: Path) -> bool:
    """Whether the database file alone is complete: no WAL or journal of a writer or of a crash beside it."""
    _, wal, _, journal = files_of(path)
    with contextlib.suppress(FileNotFoundError):
        if wal.stat().st_size > 0:
            return False
    return not journal.exists()


def _before_commit() -> bool:
    crash_point("writer.before_commit")
    return False  # SQLite goes on with the commit


class PartitionWriter:
    """The one connection that writes to a partition, and that may checkpoint it."""

    def __init__(self, path: Path, *, vfs: str | None, limit_bytes: int) -> None:
        self.path = path
        fresh = not path.exists()
        self._connection = connect(path, vfs=vfs, create=True)
        try:
            self._connection.pragma("page_size", PAGE_BYTES)  # has an effect on a new file only
            self._connection.pragma("journal_mode", "wal")
            self._connection.pragma("synchronous", "FULL")  # G1; never left to the build's default
            pages = max(8, min(CHECKPOINT_PAGES, limit_bytes // PAGE_BYTES // 4))
            self._connection.pragma("wal_autocheckpoint", pages)
            migrate(self._connection, MIGRATIONS, path)
            if is_armed("writer.before_commit"):
                self._connection.set_commit_hook(_before_commit)
            if fresh:
                sync_folder(path.parent)
            files = {file: identity(file) for file in files_of(path)[:2]}
            self._files = {file: found for file, found in files.items() if found is not None}
        except BaseException:
            self._connection.close()
            if fresh:  # a file without its table would be taken for a damaged one
                remove_database(path)
            raise

    def insert(self, first: int, count: int, received_at: float, packed: bytes) -> None:
        """Durable when it returns: one transaction, fsynced."""
        crash_point("writer.before_insert")
        # One statement is one transaction, and one release of the interpreter's lock: with BEGIN and COMMIT
        # of their own the thread had to win the lock back from the busy loop three times in each commit.
        self._connection.execute(
            "INSERT INTO commits VALUES (?, ?, ?, ?)", (first, count, received_at, packed)
        )

    def is_in_place(self) -> bool:
        """Whether the database and its WAL are still the files on their paths."""
        return all(identity(file) == found for file, found in self._files.items())

    def commits(self) -> Iterator[Commit]:
        """All commits in order, also of a file that was removed: this connection alone can still read it."""
        return _commits(self._connection, 0)

    def close(self) -> None:
        """Fold the WAL into the file, so that a closed partition is a single file."""
        try:
            self._connection.pragma("wal_checkpoint", "TRUNCATE")
        except apsw.Error:
            self.abandon()  # no space for it: the WAL stays beside the file and is read from there
        else:
            self._connection.close()

    def abandon(self) -> None:
        """Close without touching the file again, as after an I/O error that made its state unknown."""
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close()


class PartitionReader:
    """A connection that reads one partition, beside the writer and other readers.

    `closed` says that it is no longer written. It is then read without a shared-memory file, which
    leaves nothing behind and works on a full disk, where only reading and delivering events makes room.
    `looking` is for a command that looks once: see `sqlite.look`.
    """

    def __init__(
        self, path: Path, *, closed: bool = False, looking: bool = False, vfs: str | None = None
    ) -> None:
        self.path = path
        self._connection = _connect_reader(path, closed=closed, looking=looking, vfs=vfs)

    def commit_at(self, position: int) -> Commit | None:
        """The commit that holds `position`, or else the next one after it. Holds no lock when it returns."""
        return _commit_at(self._connection, position)

    def commits(self, position: int) -> Iterator[Commit]:
        """Commits in order, from `position`, each read by itself: a slow caller holds back no checkpoint."""
        return _commits(self._connection, position)

    def received_at(self, position: int) -> float | None:
        """When the event at `position`, or else the next one, was received; None without one."""
        commit = self.commit_at(position)
        return commit.received_at if commit is not None else None

    def problems(self) -> list[str]:
        """The problems that SQLite's check of the file's structure reports."""
        return [text for (text,) in select(self._connection, "PRAGMA quick_check") if text != "ok"]

    def close(self) -> None:
        self._connection.close()


def _connect_reader(path: Path, *, closed: bool, looking: bool, vfs: str | None) -> apsw.Connection:
    if looking:
        return look(path, vfs=vfs)
    return connect(path, vfs=vfs, reader=True, immutable=closed and is_whole(path))


def _commit_at(connection: apsw.Connection, position: int) -> Commit | None:
    # ">=" since the commit at `position` may be written between the two queries, and others after it
    for where in ("first <= ? ORDER BY first DESC", "first >= ? ORDER BY first"):
        for row in select(connection, f"SELECT {COLUMNS} FROM commits WHERE {where} LIMIT 1", position):  # noqa: S608
            commit = _checked(row)
            if commit.end > position:
                return commit
    return None


def _commits(connection: apsw.Connection, position: int) -> Iterator[Commit]:
    while (commit := _commit_at(connection, position)) is not None:
        yield commit
        position = commit.end


def _checked(row: tuple[Any, ...]) -> Commit:
    """The commit of a row. Every reader gets it here, so that damage of any kind is a ValueError."""
    first, count, received_at, blob = typed(row, int, int, float, bytes)
    commit = unpack(blob)
    if (commit.first, len(commit.bodies), commit.received_at) != (first, count, received_at):
        raise ValueError(f"the commit at {first} does not agree with its row")
    return commit


def inspect(
    path: Path, *, closed: bool = False, looking: bool = False, vfs: str | None = None
) -> PartitionRange:
    """A partition's range by its first and last row; raises what SQLite raises when it is damaged."""
    connection = _connect_reader(path, closed=closed, looking=looking, vfs=vfs)
    first = int(path.stem)
    try:
        check_version(connection, MIGRATIONS, path)
        edges: list[Commit] = []
        if select(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'commits'"):  # else: died creating it
            rows = select(
                connection,
                f"SELECT {COLUMNS} FROM commits WHERE first IN"  # noqa: S608
                " (SELECT min(first) FROM commits UNION ALL SELECT max(first) FROM commits) ORDER BY first",
            )
            edges = [_checked(row) for row in rows]
    finally:
        connection.close()
    if not edges:
        return PartitionRange(path, first, first, 0.0, 0.0, disk_bytes(path))
    low, high = edges[0], edges[-1]
    if low.first < first:
        raise ValueError(f"{path.name} holds position {low.first}, which is before its own first one")
    return PartitionRange(path, first, high.end, low.received_at, high.received_at, disk_bytes(path))


def salvage(path: Path, *, looking: bool = False, vfs: str | None = None) -> Iterator[Commit]:
    """Every commit of a damaged partition that can still be found and read, in order, one at a time (G8).

    The keys are gathered from both ends, since one bad page stops a scan but not a scan from the other side;
    then each row is read by itself, so that a bad one costs no other.
    """
    try:
        connection = _connect_reader(path, closed=False, looking=looking, vfs=vfs)
    except apsw.Error as error:
        if is_damage(error) or not path.exists():
            return
        raise
    try:
        keys: set[int] = set()
        for order in ("ASC", "DESC"):
            with _passing_over_damage():
                for row in connection.execute(f"SELECT first FROM commits ORDER BY first {order}"):  # noqa: S608
                    (first,) = typed(row, int)
                    if first in keys:
                        break
                    keys.add(first)
        end = int(path.stem)
        for first in sorted(keys):
            with _passing_over_damage():
                for row in select(connection, f"SELECT {COLUMNS} FROM commits WHERE first = ?", first):  # noqa: S608
                    commit = _checked(row)
                    if commit.first >= end:
                        end = commit.end
                        yield commit
    finally:
        connection.close()


@contextlib.contextmanager
def _passing_over_damage() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):  # the disk fails, and events that it cannot return now are not lost
            raise
