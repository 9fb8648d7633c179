"""The SQLite store of rejects of gateway and outlets: kept with the reason until replayed or dropped (G6).

The server and the command line may open it at the same time. A replay is a request that is written into the
store; the stage carries it out when it runs, so a request needs no running server.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from headwater.clock import Clock, SystemClock
from headwater.crash_points import crash_point
from headwater.durable_files import exclusive
from headwater.errors import LogUnavailable, RejectNotFound
from headwater.log.queue.sqlite import (
    check_version,
    classify,
    connect,
    is_damage,
    migrate,
    move_to_damaged,
    select,
)
from headwater.metrics import Metrics

T = TypeVar("T")


class NewReject(msgspec.Struct, frozen=True):
    """An event that a stage refused: the reason, and the details of each fault."""

    reason: str
    body: bytes
    details: list[dict[str, str]] = []
    position: int | None = None
    received_at: float = 0.0


class Reject(msgspec.Struct, frozen=True):
    """A stored reject. `stage` is `gateway` or `outlet:<name>`."""

    id: int
    at: float
    stage: str
    position: int | None
    received_at: float
    reason: str
    details: list[dict[str, str]]
    body: bytes
    replay_requested: bool
    tries: int


def _create(connection: apsw.Connection) -> None:
    connection.execute(
        "CREATE TABLE rejects(id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, stage TEXT NOT NULL,"
        " position INTEGER, received_at REAL NOT NULL, reason TEXT NOT NULL, details BLOB NOT NULL,"
        " body BLOB NOT NULL, replay_requested INTEGER NOT NULL DEFAULT 0,"
        " tries INTEGER NOT NULL DEFAULT 0) STRICT"
    )
    # The same event refused again after a crash is the same reject, not a second one (G3).
    connection.execute("CREATE UNIQUE INDEX once ON rejects(stage, position) WHERE position IS NOT NULL")
    connection.execute("CREATE INDEX requested ON rejects(stage, id) WHERE replay_requested")


MIGRATIONS = (_create,)
COLUMNS = "id, at, stage, position, received_at, reason, details, body, replay_requested, tries"

MAX_ID = 2**62
DROP_ROWS = 1000  # of one transaction: other threads and processes wait for it
ROW_BYTES = 200  # of a row beside its texts: numbers, index entries, the stage
SIZE = f"length(body) + length(CAST(reason AS BLOB)) + length(details) + {ROW_BYTES}"


def _reject(row: Sequence[Any]) -> Reject:
    values = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["details"] = msgspec.json.decode(values["details"])
    values["replay_requested"] = bool(values["replay_requested"])
    return Reject(**values)


class RejectReader:
    """Reads the store beside the process that writes it: never creates, migrates, moves or changes the file.

    Thread-safe. Raises LogUnavailable if the file is damaged or the disk fails.
    """

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._lock = threading.RLock()
        with self._disk():
            self._connection = self._open()

    def _open(self) -> apsw.Connection:
        connection = connect(self._path, vfs=self._vfs, reader=True)
        try:
            check_version(connection, MIGRATIONS, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def list(self, stage: str | None = None, *, limit: int = 100, after: int = 0) -> Sequence[Reject]:
        """Rejects in the order of their ids, after the given one."""
        return self._select(
            "id > ? AND (? IS NULL OR stage = ?) ORDER BY id LIMIT ?", after, stage, stage, limit
        )

    def get(self, id: int) -> Reject:
        """The reject with this id; RejectNotFound if there is none."""
        if id <= MAX_ID and (found := self._select("id = ?", id)):
            return found[0]
        raise RejectNotFound(f"There is no reject {id}.", hint="List the rejects: headwater rejects list")

    def counts(self) -> dict[str, int]:
        """Open rejects per stage."""
        with self._disk():
            return dict(select(self._fresh(), "SELECT stage, count(*) FROM rejects GROUP BY stage"))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # --- inside --------------------------------------------------------------------------------------

    @contextmanager
    def _disk(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (apsw.Error, OSError, ValueError) as error:
                if is_damage(error):
                    raise LogUnavailable(
                        f"{self._path} is damaged ({error}).",
                        hint="A running server replaces it with its next reject, and keeps it in damaged/.",
                    ) from error
                raise classify(error, self._path.parent) from error

    def _fresh(self) -> apsw.Connection:
        return self._connection

    def _select(self, where: str, *values: Any) -> Sequence[Reject]:
        with self._disk():
            rows = select(self._fresh(), f"SELECT {COLUMNS} FROM rejects WHERE {where}", *values)  # noqa: S608
        return [_reject(row) for row in rows]


class RejectStore(RejectReader):
    """Adds rejects, records what becomes of them, and keeps the store within `max_bytes`.

    Every change is on disk when the call returns. Raises LogFull or LogUnavailable if the disk fails; nothing
    was changed then. The first write that meets damage moves the file to `damaged/` and begins a new one.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        vfs: str | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._metrics = metrics or Metrics()
        self._inode = self._data_version = self._bytes = 0
        self._counts: Counter[str] = Counter()
        super().__init__(path, vfs=vfs)
        # From memory: a scrape of the metrics must not wait for the disk.
        self._metrics.gauge("rejects_open").set(lambda: self._counts.total())

    def add(self, stage: str, items: Sequence[NewReject]) -> None:
        """Keep these events, in one transaction. An event known by (stage, position) is kept once."""
        now = self._clock.now()

        def insert(connection: apsw.Connection) -> int:
            for item in items:
                details = msgspec.json.encode(item.details)
                connection.execute(
                    "INSERT OR IGNORE INTO rejects(at, stage, position, received_at, reason, details, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (now, stage, item.position, item.received_at, item.reason, details, item.body),
                )
                size = len(item.body) + len(item.reason.encode()) + len(details) + ROW_BYTES
                self._bytes += size * connection.changes()
                self._counts[stage] += connection.changes()
            return self._make_room(connection)

        dropped = self._change(insert)
        crash_point("rejects.after_insert")
        if dropped:
            self._metrics.counter("rejects_dropped").add(dropped, "bytes")

    def request_replay(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Request a replay of these (None: all of the stage, or of all stages); returns how many exist."""

        def mark(connection: apsw.Connection) -> int:
            marked = 0
            for id in [None] if ids is None else ids:
                connection.execute(
                    "UPDATE rejects SET replay_requested = 1"
                    " WHERE (? IS NULL OR id = ?) AND (? IS NULL OR stage = ?)",
                    (id, id, stage, stage),
                )
                marked += connection.changes()
            return marked

        return self._change(mark)

    def requested(self, stage: str, limit: int = 100) -> Sequence[Reject]:
        """Rejects of the stage whose replay was requested."""
        return self._select("replay_requested AND stage = ? ORDER BY id LIMIT ?", stage, limit)

    def replayed(self, id: int) -> None:
        """Remove a reject whose replay succeeded."""
        self._change(lambda connection: self._delete(connection, "id = ?", id))

    def failed_again(self, id: int, reason: str) -> None:
        """Keep a reject whose replay failed, with the new reason."""

        def update(connection: apsw.Connection) -> None:
            sql = "SELECT length(CAST(reason AS BLOB)) FROM rejects WHERE id = ?"
            for (size,) in select(connection, sql, id):
                self._bytes += len(reason.encode()) - size
            connection.execute(
                "UPDATE rejects SET replay_requested = 0, tries = tries + 1, reason = ?, at = ? WHERE id = ?",
                (reason, self._clock.now(), id),
            )

        self._change(update)

    def drop(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Remove these (None: all of the stage, or of all stages) for good; returns how many existed."""

        def delete(connection: apsw.Connection) -> int:
            if ids is not None:
                return sum(self._delete(connection, "id = ?", id) for id in ids)
            sql = f"id IN (SELECT id FROM rejects WHERE (? IS NULL OR stage = ?) LIMIT {DROP_ROWS})"  # noqa: S608
            return self._delete(connection, sql, stage, stage)

        dropped = deleted = self._change(delete)
        while deleted == DROP_ROWS and ids is None:
            deleted = self._change(delete)
            dropped += deleted
        self._metrics.counter("rejects_dropped").add(dropped, "hand")
        return dropped

    def counts(self) -> dict[str, int]:
        """Open rejects per stage, from memory unless another process has changed the store."""
        with self._disk():
            self._fresh()
            return {stage: count for stage, count in sorted(self._counts.items()) if count}

    # --- inside --------------------------------------------------------------------------------------

    @property
    def _opening(self) -> AbstractContextManager[None]:
        """Held while the file is created, migrated or moved: two processes may meet damage at once."""
        return exclusive(self._path.with_name(f"{self._path.name}.lock"))

    def _open(self) -> apsw.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._opening:
            try:
                return self._connect()
            except (apsw.Error, ValueError) as error:
                if not is_damage(error):
                    raise
                move_to_damaged(self._path, error)
                return self._connect()

    def _connect(self) -> apsw.Connection:
        connection = connect(self._path, vfs=self._vfs, create=True)
        try:
            connection.pragma("auto_vacuum", 2)  # incremental; has an effect on a new file only
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "FULL")
            migrate(connection, MIGRATIONS, self._path)
            self._measure(connection)  # passes over every row: damage shows here
            self._inode = self._path.stat().st_ino
        except BaseException:
            connection.close()
            raise
        return connection

    def _measure(self, connection: apsw.Connection) -> None:
        """Count rows and bytes, which later changes of this process keep up to date."""
        self._data_version = int(connection.pragma("data_version"))
        rows = select(connection, f"SELECT stage, count(*), sum({SIZE}) FROM rejects GROUP BY stage")  # noqa: S608
        self._counts = Counter({stage: count for stage, count, _ in rows})
        self._bytes = sum(size for _, _, size in rows)

    def _fresh(self) -> apsw.Connection:
        """The connection to the file that exists now; the figures include changes of other processes."""
        if not self._is_there():
            self._connection.close()
            self._connection = self._open()
        elif int(self._connection.pragma("data_version")) != self._data_version:
            self._measure(self._connection)
        return self._connection

    def _is_there(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _change(self, change: Callable[[apsw.Connection], T]) -> T:
        with self._disk():
            try:
                return self._transact(change)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                # An event that is refused now must still be kept (G6).
                self._connection.close()
                with self._opening:
                    if self._is_there():  # else another process has replaced it
                        move_to_damaged(self._path, error)
                self._connection = self._open()
                return self._transact(change)

    def _transact(self, change: Callable[[apsw.Connection], T]) -> T:
        connection = self._fresh()
        before = self._bytes, self._counts.copy()
        try:
            with connection:
                done = change(connection)
                # read to its end: each row of this statement frees one page
                select(connection, "PRAGMA incremental_vacuum")
        except BaseException:
            self._bytes, self._counts = before
            raise
        return done

    def _delete(self, connection: apsw.Connection, where: str, *values: Any) -> int:
        rows = select(connection, f"DELETE FROM rejects WHERE {where} RETURNING stage, {SIZE}", *values)  # noqa: S608
        for stage, size in rows:
            self._counts[stage] -= 1
            self._bytes -= size
        return len(rows)

    def _make_room(self, connection: apsw.Connection) -> int:
        """Drop the oldest rejects beyond the limit; returns how many, since nothing vanishes (G3)."""
        dropped = 0
        while self._bytes > self._max_bytes:
            for (id,) in select(connection, "SELECT id FROM rejects ORDER BY id LIMIT 100"):
                dropped += self._delete(connection, "id = ?", id)
                if self._bytes <= self._max_bytes:
                    break
        return dropped
