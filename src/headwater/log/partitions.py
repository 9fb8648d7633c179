"""A partition: one SQLite file that holds a stretch of the log.

Its name is the position of its first event, so the file listing alone tells the order and the extent of
all partitions; nothing else has to be intact to read them (G9). Dropping a partition is an unlink, which
gives the space back, and damage stays inside one file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from headwater.faults import crash_point
from headwater.log.packing import unpack
from headwater.log.sqlite import connect, is_damage, migrate, select, sync_folder

__all__ = [
    "Commit",
    "Extent",
    "PartitionReader",
    "PartitionWriter",
    "disk_bytes",
    "files_of",
    "inspect",
    "partition_path",
    "salvage",
]

PAGE_BYTES = 16 * 1024  # measured against 4 KiB: about twice the appended events per second
CHECKPOINT_PAGES = 256  # 4 MiB of WAL: a checkpoint every few seconds under full load


class Commit(msgspec.Struct, frozen=True):
    """The events of one group commit."""

    first: int
    received_at: float
    bodies: list[bytes]

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)


class Extent(msgspec.Struct):
    """What a partition holds: positions `first` up to and without `end`, received between two times."""

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


MIGRATIONS = (_create_commits,)


def partition_path(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.db"


def files_of(path: Path) -> list[Path]:
    """The database file and its companions."""
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm")]


def disk_bytes(path: Path) -> int:
    total = 0
    for file in files_of(path)[:2]:  # the -shm file is memory, not storage
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


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
            if fresh:
                sync_folder(path.parent)
        except BaseException:
            self._connection.close()
            if fresh:  # a file without its table would be taken for a damaged one
                for file in files_of(path):
                    file.unlink(missing_ok=True)
            raise

    def insert(self, first: int, count: int, received_at: float, packed: bytes) -> None:
        """Durable when it returns: one transaction, fsynced."""
        with self._connection:
            crash_point("writer.before_insert")
            self._connection.execute(
                "INSERT INTO commits VALUES (?, ?, ?, ?)", (first, count, received_at, packed)
            )
            crash_point("writer.before_commit")

    @property
    def bytes(self) -> int:
        return disk_bytes(self.path)

    def close(self) -> None:
        """Fold the WAL into the file, so that a closed partition is a single file."""
        try:
            self._connection.pragma("wal_checkpoint", "TRUNCATE")
        except apsw.Error:
            pass  # no space, or a reader is in the way: the WAL stays beside the file and is read from there
        self._connection.close()

    def abandon(self) -> None:
        """Let go without touching the file again, after an I/O error has made its state unknown."""
        with contextlib.suppress(apsw.Error):
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close()


class PartitionReader:
    """A connection that reads one partition, beside the writer and other readers."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        self.path = path
        self._connection = connect(path, vfs=vfs, reader=True)

    def commits(self, position: int) -> Iterator[Commit]:
        """Commits in order, from the one that holds `position`, or else the next one after it."""
        rows: Any = self._connection.execute(
            "SELECT first, received_at, bodies FROM commits WHERE first >="
            " coalesce((SELECT max(first) FROM commits WHERE first <= ?), 0) ORDER BY first",
            (position,),
        )
        try:
            for first, received_at, blob in rows:
                commit = Commit(first, received_at, unpack(blob))
                if commit.end > position:
                    yield commit
        finally:
            rows.close()  # ends the read transaction, which would hold back checkpoints

    def close(self) -> None:
        self._connection.close()


def inspect(path: Path, *, vfs: str | None = None) -> Extent:
    """A partition's extent by its first and last row; raises what SQLite raises when it is damaged."""
    connection = connect(path, vfs=vfs, reader=True)
    try:
        if not select(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'commits'"):
            return Extent(
                path, int(path.stem), int(path.stem), 0.0, 0.0, disk_bytes(path)
            )  # died while creating it
        edges = select(
            connection,
            "SELECT first, count, received_at FROM commits WHERE first IN"
            " (SELECT min(first) FROM commits UNION ALL SELECT max(first) FROM commits) ORDER BY first",
        )
    finally:
        connection.close()
    first = int(path.stem)
    if not edges:
        return Extent(path, first, first, 0.0, 0.0, disk_bytes(path))
    (low, _, first_at), (high, count, last_at) = edges[0], edges[-1]
    if low < first:
        raise ValueError(f"{path.name} holds position {low}, which is before its own first one")
    return Extent(path, first, high + count, first_at, last_at, disk_bytes(path))


def salvage(path: Path, *, vfs: str | None = None) -> list[Commit]:
    """Every commit of a damaged partition that can still be read, in order.

    The rows are read from both ends, since one bad page stops a scan but not a scan from the other side.
    """
    found: dict[int, Commit] = {}
    for order in ("ASC", "DESC"):
        try:
            connection = connect(path, vfs=vfs, reader=True)
        except apsw.Error:
            return []
        try:
            rows: Any = connection.execute(
                f"SELECT first, received_at, bodies FROM commits ORDER BY first {order}"  # noqa: S608
            )
            for first, received_at, blob in rows:
                if first in found:
                    break
                with contextlib.suppress(ValueError):
                    found[first] = Commit(first, received_at, unpack(blob))
        except apsw.Error as error:
            if not is_damage(error) and not isinstance(error, apsw.SQLError):  # SQLError: no table in it
                raise
        finally:
            connection.close()
    return [found[first] for first in sorted(found)]
