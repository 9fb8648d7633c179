"""The rejects: events that could not go on, with the reason, kept until somebody replays or drops them (G6).

One SQLite file that the server and the command line may open at the same time. A replay is a request
written into it; whoever owns the stage picks it up, so it works with the server up or down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from headwater.clock import Clock, SystemClock
from headwater.crash_points import crash_point
from headwater.errors import RejectNotFound
from headwater.log.queue.damaged import move_aside
from headwater.log.queue.sqlite import classify, connect, is_damage, migrate, select
from headwater.metrics import Metrics

__all__ = ["NewReject", "Reject", "Rejects"]

T = TypeVar("T")


class NewReject(msgspec.Struct, frozen=True):
    """An event that could not go on: why, and what exactly is wrong with it."""

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

ROW_BYTES = 200  # of a row beside its texts: numbers, index entries, the stage
SIZE = f"length(body) + length(CAST(reason AS BLOB)) + length(details) + {ROW_BYTES}"


def _reject(row: Sequence[Any]) -> Reject:
    values = dict(zip(COLUMNS.split(", "), row, strict=True))
    values["details"] = msgspec.json.decode(values["details"])
    values["replay_requested"] = bool(values["replay_requested"])
    return Reject(**values)


class Rejects:
    """Thread-safe; every change is on disk when the call returns.

    Raises LogFull or LogUnavailable where the disk refuses; nothing was changed then.
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
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._metrics = metrics or Metrics()
        self._vfs = vfs
        self._lock = threading.RLock()
        self._bytes = self._file = 0
        with self._disk():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._open()
            except (apsw.Error, ValueError) as error:
                if not is_damage(error):
                    raise
                move_aside(path, error)
                self._connection = self._open()
        # asked for when somebody looks: counting passes over all rows
        self._metrics.gauge("rejects_open").set(lambda: sum(self.counts().values()))

    def _open(self) -> apsw.Connection:
        connection = connect(self._path, vfs=self._vfs, create=True)
        try:
            connection.pragma("auto_vacuum", 2)  # incremental; has an effect on a new file only
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "FULL")
            migrate(connection, MIGRATIONS, self._path)
            self._bytes = _sum_bytes(connection)  # passes over every row: damage shows here
            self._file = self._path.stat().st_ino
        except BaseException:
            connection.close()
            raise
        return connection

    def add(self, stage: str, items: Sequence[NewReject]) -> None:
        """Keep these events, in one transaction. One known by (stage, position) is kept once."""
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
            return self._make_room(connection)

        dropped = self._change(insert)
        crash_point("rejects.after_insert")
        if dropped:
            self._metrics.counter("rejects_dropped").add(dropped, "bytes")

    def list(self, stage: str | None = None, *, limit: int = 100, after: int = 0) -> Sequence[Reject]:
        """Rejects in the order of their ids, after the given one."""
        return self._select(
            "id > ? AND (? IS NULL OR stage = ?) ORDER BY id LIMIT ?", after, stage, stage, limit
        )

    def get(self, id: int) -> Reject:
        """One reject; RejectNotFound when there is none of this id."""
        if found := self._select("id = ?", id):
            return found[0]
        raise RejectNotFound(
            f"There is no reject {id}.", hint="`headwater rejects list` shows those there are."
        )

    def request_replay(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Ask for these (None: all of the stage, or of all stages) to be tried again; how many there were."""
        return self._each("UPDATE rejects SET replay_requested = 1", ids, stage)

    def requested(self, stage: str, limit: int = 100) -> Sequence[Reject]:
        """What somebody wants the stage to try again."""
        return self._select("replay_requested AND stage = ? ORDER BY id LIMIT ?", stage, limit)

    def replayed(self, id: int) -> None:
        """It went on this time: the reject is gone."""
        self._each("DELETE FROM rejects", [id], None)

    def failed_again(self, id: int, reason: str) -> None:
        """It was tried again and failed: kept, with the newest reason."""
        values = (reason, self._clock.now(), id)
        self._change(
            lambda connection: connection.execute(
                "UPDATE rejects SET replay_requested = 0, tries = tries + 1, reason = ?, at = ? WHERE id = ?",
                values,
            )
        )

    def drop(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Remove these for good (None: all of the stage, or of all stages); how many there were."""
        dropped = self._each("DELETE FROM rejects", ids, stage)
        self._metrics.counter("rejects_dropped").add(dropped, "hand")
        return dropped

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
            except (apsw.Error, OSError) as error:
                raise classify(error, self._path.parent) from error

    def _fresh(self) -> apsw.Connection:
        """The connection to the file that is there now: another process may have set the old one aside."""
        if self._file and not self._is_there():
            self._connection.close()
            self._connection = self._open()
        return self._connection

    def _is_there(self) -> bool:
        try:
            return self._path.stat().st_ino == self._file
        except FileNotFoundError:
            return False

    def _change(self, change: Callable[[apsw.Connection], T]) -> T:
        with self._disk():
            try:
                return self._transact(change)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                # What is refused now must still be kept (G6): a new file takes the place of the damaged one.
                self._connection.close()
                move_aside(self._path, error)
                self._connection = self._open()
                return self._transact(change)

    def _transact(self, change: Callable[[apsw.Connection], T]) -> T:
        connection = self._fresh()
        with connection:
            done = change(connection)
            # read to its end: each row of this statement gives one page back
            select(connection, "PRAGMA incremental_vacuum")
        return done

    def _select(self, where: str, *values: Any) -> Sequence[Reject]:
        with self._disk():
            rows = select(self._fresh(), f"SELECT {COLUMNS} FROM rejects WHERE {where}", *values)  # noqa: S608
        return [_reject(row) for row in rows]

    def _each(self, statement: str, ids: Sequence[int] | None, stage: str | None) -> int:
        def change(connection: apsw.Connection) -> int:
            changed = 0
            for id in [None] if ids is None else ids:
                connection.execute(
                    f"{statement} WHERE (? IS NULL OR id = ?) AND (? IS NULL OR stage = ?)",
                    (id, id, stage, stage),
                )
                changed += connection.changes()
            self._bytes = _sum_bytes(connection)
            return changed

        return self._change(change)

    def _make_room(self, connection: apsw.Connection) -> int:
        """Drop the oldest while there is more than the limit; how many, since nothing vanishes (G3)."""
        dropped = 0
        if self._bytes > self._max_bytes:  # another process may have dropped some meanwhile
            self._bytes = _sum_bytes(connection)
        while self._bytes > self._max_bytes:
            for id, size in select(connection, f"SELECT id, {SIZE} FROM rejects ORDER BY id LIMIT 100"):  # noqa: S608
                connection.execute("DELETE FROM rejects WHERE id = ?", (id,))
                self._bytes -= size
                dropped += 1
                if self._bytes <= self._max_bytes:
                    break
        return dropped


def _sum_bytes(connection: apsw.Connection) -> int:
    return int(connection.execute(f"SELECT coalesce(sum({SIZE}), 0) FROM rejects").get)  # noqa: S608
