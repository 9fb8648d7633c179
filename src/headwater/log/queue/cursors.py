"""The cursors of named readers: which positions each has finished, with which outcomes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from headwater.crash_points import crash_point
from headwater.log.queue.sqlite import check_version, connect, migrate, move_to_damaged, select

BLOCK = 8192  # positions per bitmap: 1 KiB at most, so a commit rewrites little


class CursorRow(msgspec.Struct):
    """A reader's position, and its finished events counted by outcome (G3)."""

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
    """The file of all cursors: one connection, used by one thread at a time under `lock`."""

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
                # NORMAL: a commit survives kill -9 without an fsync. A power cut may undo the last cursor
                # moves, which resends events (G4) and loses none. `durable` is for changes that must stay.
                connection.pragma("synchronous", "NORMAL")
                self.is_new = migrate(connection, MIGRATIONS, self._path) == 0
            # The file is small, and damage should be found here rather than by a later commit.
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
            move_to_damaged(self._path, error)
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
            connection.execute("DELETE FROM notes WHERE name = ?", (f"settled:{reader}",))

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
            self.put_note(connection, name, value)

    def put_note(self, connection: apsw.Connection, name: str, value: str) -> None:
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def close(self) -> None:
        with self.lock:
            self._connection.close()


Outcome = Literal["delivered", "rejected", "dropped_age", "dropped_bytes", "dropped_damage"]


class Cursor:
    """The lowest unfinished position, bitmaps of what is finished above it, and the counts of G3.

    Changed under the index's lock, since collection moves cursors too.
    """

    def __init__(self, index: Index, row: CursorRow) -> None:
        self._index = index
        self.row = row
        self._blocks = index.blocks(row.reader)
        self._dirty: set[int] = set()
        self._has_rows = bool(self._blocks)  # the index has bitmaps of ours
        self._forgotten = False
        self.is_stored = True  # the file has all that memory has

    @property
    def position(self) -> int:
        return self.row.position

    def finish(self, outcomes: dict[Outcome, Iterable[int]]) -> dict[str, int]:
        """Record the outcomes of positions in one transaction; those finished before are not counted again.

        Survives kill -9; a power cut may take it back (G4). Returns how many were new, per outcome. If the
        disk fails, memory stays ahead of the file, and the next commit writes all of it: the events were
        delivered in any case.
        """
        return self._finish(outcomes, durable=False)

    def drop(self, outcome: Outcome, positions: range) -> int:
        """Like `finish`, but on disk when it returns, and undone if the disk fails: events are dropped only
        once the drop is recorded (G3)."""
        with self._index.lock:
            row, blocks = msgspec.structs.replace(self.row), dict(self._blocks)
            try:
                return self._finish({outcome: positions}, durable=True)[outcome]
            except BaseException:
                self.row, self._blocks = row, blocks
                raise

    def settle(self, source: str, settlements: Sequence[tuple[int, str, int]]) -> int:
        """Count what became of rejects, as (number, outcome, events) in the order of the numbers.

        On disk when it returns, together with the last number, up to which the same `source` may repeat
        them: each is counted once, whatever crashes. Returns that number.
        """
        with self._index.lock:
            name = f"settled:{self.row.reader}"
            counted_source, _, number = (self._index.notes(name) or "").partition(" ")
            last = int(number) if counted_source == source else 0
            row = msgspec.structs.replace(self.row)
            for id, outcome, events in settlements:
                if id > last:
                    moved = min(events, row.rejected)  # fewer if the index was lost meanwhile
                    row.rejected -= moved
                    setattr(row, outcome, getattr(row, outcome) + moved)
                    last = id
            if not self._forgotten:
                with self._index.transaction(durable=True) as connection:
                    self._index.put(row)
                    self._index.put_note(connection, name, f"{source} {last}")
            self.row = row
            return last

    def store(self, *, whole: bool = False) -> None:
        """Write changes to disk or, with `whole`, the whole cursor into a new index."""
        with self._index.lock:
            if whole:
                self._dirty, self._has_rows = set(self._blocks), False
            self._finish({}, durable=True)

    def forget(self) -> None:
        with self._index.lock:
            self._index.forget(self.row.reader)
            self._forgotten = True  # a reader that is still at work must not bring it back

    def is_finished(self, position: int) -> bool:
        if position < self.row.position:
            return True
        bits = self._blocks.get(position // BLOCK)
        return bits is not None and bool(bits >> position % BLOCK & 1)

    @property
    def is_in_order(self) -> bool:
        """Whether nothing is finished above the position: the common case, in which reads need no bitmaps."""
        return not self._blocks

    def _finish(self, outcomes: dict[Outcome, Iterable[int]], *, durable: bool) -> dict[str, int]:
        with self._index.lock:
            new: dict[str, int] = {}
            for outcome, positions in outcomes.items():
                new[outcome] = self._mark(positions)
                setattr(self.row, outcome, getattr(self.row, outcome) + new[outcome])
            self._advance()
            if self._forgotten:
                return new
            self.is_stored = False
            with self._index.transaction(durable=durable):
                if self._has_rows:
                    self._index.drop_blocks(self.row.reader, min(self._blocks, default=1 << 62))
                for block in self._dirty & self._blocks.keys():
                    self._index.put_block(self.row.reader, block, self._blocks[block])
                self._index.put(self.row)
                crash_point("cursor.before_commit")
            self._dirty.clear()
            self._has_rows = bool(self._blocks)
            self.is_stored = True
            crash_point("cursor.after_commit")
            return new

    def _mark(self, positions: Iterable[int]) -> int:
        masks: dict[int, int] = {}
        low = self.row.position
        if isinstance(positions, range) and positions.step == 1:
            start = max(positions.start, low)
            while start < positions.stop:
                block, bit = divmod(start, BLOCK)
                stop = min(positions.stop, (block + 1) * BLOCK)
                masks[block] = ((1 << (stop - start)) - 1) << bit
                start = stop
        else:
            for position in positions:
                if position >= low:
                    block, bit = divmod(position, BLOCK)
                    masks[block] = masks.get(block, 0) | 1 << bit
        count = 0
        for block, mask in masks.items():
            before = self._blocks.get(block, 0)
            count += (mask & ~before).bit_count()
            self._blocks[block] = before | mask
            self._dirty.add(block)
        return count

    def _advance(self) -> None:
        """Move the position over everything finished, and forget the bitmaps below it."""
        while bits := self._blocks.get(self.row.position // BLOCK):
            ahead = bits >> self.row.position % BLOCK
            run = (~ahead & (ahead + 1)).bit_length() - 1  # trailing ones
            self.row.position += run
            if run == 0 or self.row.position % BLOCK:
                break
        current = self.row.position // BLOCK
        for block in [block for block in self._blocks if block < current]:
            del self._blocks[block]
        if not self._blocks.get(current, 0) >> self.row.position % BLOCK:
            self._blocks.pop(current, None)
