"""The small database beside the partitions: cursors, counters, and what was found damaged.

Losing it costs positions, never events: the partitions are the truth, and without cursors every reader
starts at the oldest event that is kept (at least once, G4).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from headwater.log.aside import move_aside
from headwater.log.sqlite import check_version, connect, migrate, select

__all__ = ["BLOCK", "CursorRow", "Index"]

BLOCK = 8192  # positions per bitmap: 1 KiB at most, so a commit rewrites little


class CursorRow(msgspec.Struct):
    """Where a reader is and what became of the events before: the four numbers of G3."""

    reader: str
    base: int
    position: int
    delivered: int = 0
    rejected: int = 0
    dropped_age: int = 0
    dropped_bytes: int = 0
    dropped_damage: int = 0

    @property
    def finished(self) -> int:
        return self.delivered + self.rejected + self.dropped_age + self.dropped_bytes + self.dropped_damage


def _cursors(connection: apsw.Connection) -> None:
    connection.execute(
        "CREATE TABLE cursors(reader TEXT PRIMARY KEY, base INTEGER NOT NULL, position INTEGER NOT NULL,"
        " delivered INTEGER NOT NULL, rejected INTEGER NOT NULL, dropped_age INTEGER NOT NULL,"
        " dropped_bytes INTEGER NOT NULL, dropped_damage INTEGER NOT NULL) STRICT"
    )
    connection.execute("CREATE TABLE notes(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")


def _finished(connection: apsw.Connection) -> None:
    # Positions finished above a cursor, a bitmap per block: keyed delivery finishes out of order.
    connection.execute(
        "CREATE TABLE finished(reader TEXT NOT NULL, block INTEGER NOT NULL, bits BLOB NOT NULL,"
        " PRIMARY KEY (reader, block)) STRICT, WITHOUT ROWID"
    )


MIGRATIONS = (_cursors, _finished)
FIELDS = CursorRow.__struct_fields__


class Index:
    """One connection, used by one thread at a time under `lock`."""

    def __init__(self, path: Path, *, vfs: str | None = None, reader: bool = False) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._vfs = vfs
        self.is_new = False  # nothing was in it when it was opened
        self._connection = self._open(reader)

    def _open(self, reader: bool) -> apsw.Connection:
        connection = connect(self._path, vfs=self._vfs, create=not reader, reader=reader)
        try:
            if reader:
                check_version(connection, MIGRATIONS, self._path)
            else:
                connection.pragma("journal_mode", "wal")
                # NORMAL: a commit survives kill -9 without an fsync. A power cut may take the last cursor
                # moves back, which resends events (G4) and loses none. `durable` is for what must stay.
                connection.pragma("synchronous", "NORMAL")
                self.is_new = migrate(connection, MIGRATIONS, self._path) == 0
            # The file is small, and damage should show here, not in the middle of the work.
            problems = [text for (text,) in select(connection, "PRAGMA quick_check") if text != "ok"]
            if problems:
                raise ValueError("; ".join(problems[:3]))
            connection.execute("SELECT 1 FROM cursors, notes LIMIT 1").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def replace(self, error: Exception) -> None:
        """Set the damaged file aside and begin an empty one; the caller fills it from what it knows."""
        with self.lock:
            self._connection.close()
            move_aside(self._path, error)
            self._connection = self._open(reader=False)

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[apsw.Connection]:
        """All or nothing; fsynced when `durable`."""
        with self.lock:
            if durable:
                self._connection.pragma("synchronous", "FULL")
            try:
                with self._connection:
                    yield self._connection
            finally:
                if durable:
                    self._connection.pragma("synchronous", "NORMAL")

    def cursors(self) -> list[CursorRow]:
        with self.lock:
            rows = select(self._connection, f"SELECT {', '.join(FIELDS)} FROM cursors ORDER BY reader")  # noqa: S608
        return [CursorRow(*row) for row in rows]

    def put(self, row: CursorRow) -> None:
        marks = ", ".join("?" * len(FIELDS))
        self._connection.execute(
            f"INSERT OR REPLACE INTO cursors({', '.join(FIELDS)}) VALUES ({marks})",  # noqa: S608
            msgspec.structs.astuple(row),
        )

    def forget(self, reader: str) -> None:
        with self.transaction(durable=True) as connection:
            connection.execute("DELETE FROM cursors WHERE reader = ?", (reader,))
            connection.execute("DELETE FROM finished WHERE reader = ?", (reader,))

    def blocks(self, reader: str) -> dict[int, int]:
        """The bitmaps of finished positions, by block number."""
        with self.lock:
            rows = select(self._connection, "SELECT block, bits FROM finished WHERE reader = ?", reader)
        return {block: int.from_bytes(bits, "little") for block, bits in rows}

    def highest(self) -> int:
        """The position after the highest one that any reader has finished."""
        rows = self.cursors()
        ends = [
            block * BLOCK + bits.bit_length()
            for row in rows
            for block, bits in self.blocks(row.reader).items()
        ]
        return max([0, *ends, *(row.position for row in rows)])

    def put_block(self, reader: str, block: int, bits: int) -> None:
        blob = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        self._connection.execute("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", (reader, block, blob))

    def drop_blocks(self, reader: str, below: int) -> None:
        self._connection.execute("DELETE FROM finished WHERE reader = ? AND block < ?", (reader, below))

    def notes(self, name: str) -> str | None:
        """A named remark about the folder as a whole."""
        with self.lock:
            rows = select(self._connection, "SELECT value FROM notes WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def note(self, name: str, value: str) -> None:
        with self.transaction(durable=True) as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def close(self) -> None:
        with self.lock:
            self._connection.close()
