"""The cursors of named readers: which positions each has finished, with which outcomes.

Each row of the index has a checksum over all of it, since a number that a flipped bit has changed would skip
events without a trace.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import apsw
import msgspec

from headwater.log.queue.sqlite import (
    check_version,
    connect,
    files_of,
    look,
    migrate,
    move_to_damaged,
    select,
    typed,
)
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import identity

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


def _checksums(connection: apsw.Connection) -> None:
    for table, columns in TABLES.items():
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
        keys = columns[:2] if table == "finished" else columns[:1]
        where = " AND ".join(f"{key} = ?" for key in keys)
        for row in select(connection, f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608
            sql = f"UPDATE {table} SET checksum = ? WHERE {where}"  # noqa: S608
            connection.execute(sql, (_checksum(row), *row[: len(keys)]))


FIELDS = CursorRow.__struct_fields__
TABLES: dict[str, tuple[str, ...]] = {
    "cursors": FIELDS,
    "finished": ("reader", "block", "bits"),
    "notes": ("name", "value"),
}
TYPES: dict[str, tuple[type, ...]] = {
    "cursors": (str, *[int] * (len(FIELDS) - 1)),
    "finished": (str, int, bytes),
    "notes": (str, str),
}
MIGRATIONS = (_cursors, _finished, _checksums)
CHECKED_VERSION = 3  # since this one rows have checksums
DOOMED = "doomed:"
SETTLED = "settled:"


def _checksum(row: Sequence[object]) -> int:
    return zlib.crc32(repr(tuple(row)).encode())


def _put(connection: apsw.Connection, table: str, row: tuple[object, ...]) -> None:
    columns = ", ".join((*TABLES[table], "checksum"))
    marks = ", ".join("?" * (len(row) + 1))
    sql = f"INSERT OR REPLACE INTO {table}({columns}) VALUES ({marks})"  # noqa: S608
    connection.execute(sql, (*row, _checksum(row)))


class Index:
    """The file of all cursors: one connection, used by one thread at a time under `lock`."""

    def __init__(self, path: Path, *, vfs: str | None = None, reader: bool = False) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._vfs = vfs
        self.is_new = False  # nothing was in it when it was opened
        self._connection = self._open(reader)

    def _open(self, reader: bool) -> apsw.Connection:
        if reader:
            connection = look(self._path, vfs=self._vfs)
        else:
            connection = connect(self._path, vfs=self._vfs, create=True)
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
                raise ValueError("; ".join(map(str, problems[:3])))
            for table in TABLES:
                self._rows(connection, table)
            self._notes = dict(self._rows(connection, "notes"))
            self._files = {file: identity(file) for file in files_of(self._path)[:2]}
        except BaseException:
            connection.close()
            raise
        return connection

    def _rows(self, connection: apsw.Connection, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table, checked; ValueError if one is not as it was written."""
        columns = ", ".join(TABLES[table])
        version = int(connection.pragma("user_version"))
        if version < CHECKED_VERSION:  # read from outside, before a server of this release has migrated it
            if version < 2 and table == "finished":
                return []
            sql = f"SELECT {columns} FROM {table}"  # noqa: S608
            return [tuple(typed(row, *TYPES[table])) for row in select(connection, sql)]
        rows = []
        for row in select(connection, f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608
            if row[-1] != _checksum(row[:-1]):
                raise ValueError(f"a row of {table} has a wrong checksum")
            rows.append(tuple(typed(row[:-1], *TYPES[table])))
        return rows

    def is_in_place(self) -> bool:
        """Whether the database and its WAL are still the files on their paths."""
        return all(identity(file) == found for file, found in self._files.items() if found is not None)

    def replace(self, error: Exception) -> None:
        """Set the damaged file aside and begin a new one with the notes; the caller adds the cursors."""
        with self.lock:
            notes = self._notes
            self._connection.close()
            move_to_damaged(self._path, error)
            self._connection = self._open(reader=False)
            with self.transaction(durable=True) as connection:
                for name, value in notes.items():
                    self.put_note(connection, name, value)

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[apsw.Connection]:
        """All or nothing; fsynced when `durable`."""
        with self.lock:
            notes = dict(self._notes)
            if durable:
                self._connection.pragma("synchronous", "FULL")
            try:
                with self._connection:
                    yield self._connection
            except BaseException:
                self._notes = notes
                raise
            finally:
                if durable:
                    self._connection.pragma("synchronous", "NORMAL")

    def cursors(self) -> list[CursorRow]:
        with self.lock:
            return [CursorRow(*row) for row in sorted(self._rows(self._connection, "cursors"))]

    def put(self, row: CursorRow) -> None:
        _put(self._connection, "cursors", msgspec.structs.astuple(row))

    def forget(self, reader: str) -> None:
        with self.transaction(durable=True) as connection:
            self._delete(connection, reader)

    def _delete(self, connection: apsw.Connection, reader: str) -> None:
        connection.execute("DELETE FROM cursors WHERE reader = ?", (reader,))
        connection.execute("DELETE FROM finished WHERE reader = ?", (reader,))
        for name in (SETTLED + reader, DOOMED + reader):
            connection.execute("DELETE FROM notes WHERE name = ?", (name,))
            self._notes.pop(name, None)

    def rename(self, reader: str, name: str) -> None:
        with self.transaction(durable=True) as connection:
            for row in self.cursors():
                if row.reader == reader:
                    self.put(msgspec.structs.replace(row, reader=name))
            for block, bits in self.blocks(reader).items():
                self.put_block(name, block, bits)
            for prefix in (SETTLED, DOOMED):
                if (note := self.notes(prefix + reader)) is not None:
                    self.put_note(connection, prefix + name, note)
            self._delete(connection, reader)

    def blocks(self, reader: str) -> dict[int, int]:
        """The bitmaps of finished positions, by block number."""
        with self.lock:
            rows = self._rows(self._connection, "finished")
        return {block: int.from_bytes(bits, "little") for name, block, bits in rows if name == reader}

    def highest(self) -> int:
        """The position after the highest one that any reader has finished."""
        with self.lock:
            rows = self._rows(self._connection, "finished")
        ends: list[int] = [
            block * BLOCK + int.from_bytes(bits, "little").bit_length() for _, block, bits in rows
        ]
        return max([0, *ends, *(row.position for row in self.cursors())])

    def put_block(self, reader: str, block: int, bits: int) -> None:
        blob = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        _put(self._connection, "finished", (reader, block, blob))

    def drop_blocks(self, reader: str, below: int) -> None:
        self._connection.execute("DELETE FROM finished WHERE reader = ? AND block < ?", (reader, below))

    def notes(self, name: str) -> str | None:
        """A named remark about a reader or about the folder as a whole."""
        return self._notes.get(name)

    def note(self, name: str, value: str) -> None:
        with self.transaction(durable=True) as connection:
            self.put_note(connection, name, value)

    def put_note(self, connection: apsw.Connection, name: str, value: str) -> None:
        _put(connection, "notes", (name, value))
        self._notes[name] = value

    def close(self) -> None:
        with self.lock:
            self._connection.close()


Outcome = Literal["delivered", "rejected", "dropped_age", "dropped_bytes", "dropped_damage"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)


def doomed(index: Index, reader: str) -> list[Doomed]:
    """What was recorded of a reader's positions that were in memory when their partition was removed."""
    text = index.notes(DOOMED + reader)
    return [
        Doomed(int(first), int(end), cast(Outcome, outcome))
        for first, end, outcome in (each.split("-") for each in (text or "").split(",") if each)
        if outcome in OUTCOMES
    ]


def _doom_text(found: Sequence[Doomed]) -> str:
    return ",".join(f"{first}-{end}-{outcome}" for first, end, outcome in found)


class Doomed(NamedTuple):
    """Positions whose partition was removed while the owner of the reader held some of them in memory.

    These get their fate from the owner. If the process ends before, all of them get this outcome.
    """

    first: int
    end: int
    outcome: Outcome


class Cursor:
    """The lowest unfinished position, bitmaps of what is finished above it, and the counts of G3.

    Changed under the index's lock, since collection moves cursors too. A position is counted once, with its
    first outcome. Positions that are held are in the memory of the reader's owner, so removing their
    partition does not lose them.
    """

    def __init__(self, index: Index, row: CursorRow) -> None:
        self._index = index
        self.row = row
        self._blocks = index.blocks(row.reader)
        self._dirty: set[int] = set()
        self._has_rows = bool(self._blocks)  # the index has bitmaps of ours
        self._held: set[int] = set()
        self._doomed = doomed(index, row.reader)
        self._is_doom_stored = True
        self._forgotten = False
        self.is_stored = True  # the file has all that memory has

    @property
    def position(self) -> int:
        return self.row.position

    def finish(self, outcomes: dict[Outcome, Iterable[int]]) -> dict[Outcome, int]:
        """Record the outcomes of positions in one transaction; those finished before are not counted again.

        Survives kill -9; a power cut may take it back (G4). Returns how many were new, per outcome. If the
        disk fails, memory stays ahead of the file, and the next commit writes all of it: the events were
        delivered in any case.
        """
        known = {
            outcome: positions if isinstance(positions, range) else list(positions)
            for outcome, positions in outcomes.items()
        }
        with self._index.lock:
            if self._held:
                for positions in known.values():
                    self._held.difference_update(positions)
            return self._finish(known, durable=False)

    def drop(self, outcome: Outcome, positions: range, *, is_removed: bool = False) -> int:
        """Like `finish`, but on disk when it returns, and undone if the disk fails: events are dropped only
        once the drop is recorded (G3). Positions that are held are not lost, and not dropped.

        If their partition `is_removed` already, memory stays ahead of a disk that fails, as in `finish`.
        """
        with self._index.lock:
            row, blocks, before = msgspec.structs.replace(self.row), dict(self._blocks), self._doomed
            held = [each for each in self._held if each in positions and not self.is_finished(each)]
            try:
                if any(self._doom_of(each) is None for each in held):
                    self._doomed = [*before, Doomed(positions.start, positions.stop, outcome)]
                    self._is_doom_stored = False
                self._finish({outcome: positions}, durable=True, without=held)
            except BaseException as error:
                if not is_removed or not isinstance(error, (apsw.Error, OSError)):
                    self.row, self._blocks, self._doomed = row, blocks, before
                    raise
            return int(getattr(self.row, outcome) - getattr(row, outcome))

    def hold(self, positions: Iterable[int]) -> list[int]:
        """Note that the owner of the reader has these in memory; returns those that are not finished."""
        with self._index.lock:
            kept = [each for each in positions if not self.is_finished(each)]
            self._held.update(kept)
            return kept

    def has_fates(self, positions: range) -> bool:
        """Whether each of the positions is finished or held."""
        with self._index.lock:
            return all(self.is_finished(each) or each in self._held for each in positions)

    def release(self, positions: Iterable[int] | None = None) -> dict[Outcome, int]:
        """Note that the owner has these (None: all) in memory no more; they are not finished.

        Those whose partition is gone are dropped now. Returns how many, per outcome.
        """
        with self._index.lock:
            released = self._held & set(positions) if positions is not None else set(self._held)
            self._held -= released
            lost: dict[Outcome, list[int]] = {}
            for each in released if self._doomed else ():
                if (outcome := self._doom_of(each)) is not None:
                    lost.setdefault(outcome, []).append(each)
            return self._finish(lost, durable=True) if lost else {}

    def drop_doomed(self) -> dict[Outcome, int]:
        """Drop what an earlier process held in memory when its partition was removed."""
        with self._index.lock:
            if not self._doomed:
                return {}
            counts: dict[Outcome, int] = {}
            for each in self._doomed:
                found = self._finish({each.outcome: range(each.first, each.end)}, durable=True)
                counts[each.outcome] = counts.get(each.outcome, 0) + found[each.outcome]
            return counts

    def _doom_of(self, position: int) -> Outcome | None:
        for each in self._doomed:
            if each.first <= position < each.end:
                return each.outcome
        return None

    def settle(self, source: str, settlements: Sequence[tuple[int, str, int]]) -> int:
        """Count what became of rejects, as (number, outcome, events) in the order of the numbers.

        On disk when it returns, together with the last number, up to which the same `source` may repeat
        them: each is counted once, whatever crashes. Returns that number.
        """
        with self._index.lock:
            name = SETTLED + self.row.reader
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
                self._dirty, self._has_rows, self.is_stored = set(self._blocks), False, False
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

    def _finish(
        self, outcomes: Mapping[Outcome, Iterable[int]], *, durable: bool, without: Sequence[int] = ()
    ) -> dict[Outcome, int]:
        with self._index.lock:
            new: dict[Outcome, int] = {}
            for outcome, positions in outcomes.items():
                new[outcome] = self._mark(positions, without)
                setattr(self.row, outcome, getattr(self.row, outcome) + new[outcome])
            self._advance()
            if self._doomed and self._doomed[0].end <= self.row.position:
                self._doomed = [each for each in self._doomed if each.end > self.row.position]
                self._is_doom_stored = False
            if self._forgotten:
                return new
            self.is_stored = False
            with self._index.transaction(durable=durable) as connection:
                if self._has_rows:
                    self._index.drop_blocks(self.row.reader, min(self._blocks, default=1 << 62))
                for block in self._dirty & self._blocks.keys():
                    self._index.put_block(self.row.reader, block, self._blocks[block])
                if not self._is_doom_stored:
                    self._index.put_note(connection, DOOMED + self.row.reader, _doom_text(self._doomed))
                self._index.put(self.row)
                crash_point("cursor.before_commit")
            self._dirty.clear()
            self._has_rows = bool(self._blocks)
            self.is_stored = self._is_doom_stored = True
            crash_point("cursor.after_commit")
            return new

    def _mark(self, positions: Iterable[int], without: Sequence[int]) -> int:
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
        for position in without:
            block, bit = divmod(position, BLOCK)
            if block in masks:
                masks[block] &= ~(1 << bit)
        count = 0
        for block, mask in masks.items():
            if not mask:
                continue
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
