"""The SQLite store of rejects of gateway and outlets: kept with the reason until replayed or dropped (G6).

The server and the command line may open it at the same time. A replay is a request that is written into the
store; the stage carries it out when it runs, so a request needs no running server.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from headwater.clock import Clock, SystemClock
from headwater.errors import LogUnavailable, RejectNotFound
from headwater.log.queue.sqlite import (
    check_version,
    classify,
    connect,
    is_damage,
    look,
    migrate,
    move_to_damaged,
    select,
    typed_rows,
)
from headwater.log.rejects.loss_report import LossReport
from headwater.log.rejects.salvage import SALVAGED, salvage, salvage_path
from headwater.log.rejects.schema import (
    COUNT,
    DAMAGED,
    MIGRATIONS,
    ROW_BYTES,
    SIZE,
    NewReject,
    Reject,
    checksum,
    columns,
    file_id,
    reject_of,
)
from headwater.log.rejects.totals import (
    GATEWAY,
    Reason,
    Settlement,
    Stored,
    Totals,
    is_acknowledged,
)
from headwater.metrics import Metrics
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import exclusive, sync_folder

__all__ = ["NewReject", "Reject", "RejectReader", "RejectStore"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


MAX_ID = 2**62
REASON_ROWS = 5_000  # at a time
VERIFY_ROWS = 100  # at a time: each may have megabytes
DROP_ROWS = 1000  # of one transaction: other threads and processes wait for it
HOUR_SECONDS = 3600.0
ACKNOWLEDGED = f"stage <> '{GATEWAY}'"


class _Pending(NamedTuple):
    """Stages with requested replays or settlements; when the oldest acknowledged event was refused."""

    stages: frozenset[str]
    oldest_at: float


class _LostFile(NamedTuple):
    """A file that another one replaces: its id, its inode, and the figures that it had."""

    file: str
    inode: int
    totals: Totals


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
        connection = look(self._path, vfs=self._vfs)
        try:
            self._version = check_version(connection, MIGRATIONS, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def list(self, stage: str | None = None, *, limit: int = 100, after: int = 0) -> Sequence[Reject]:
        """Rejects in the order of their ids, after the given one."""
        if stage is None:
            return self._select("id > ? ORDER BY id LIMIT ?", after, limit)
        return self._select("stage = ? AND id > ? ORDER BY id LIMIT ?", stage, after, limit)

    def get(self, id: int) -> Reject:
        """The reject with this id; RejectNotFound if there is none."""
        if id <= MAX_ID and (found := self._select("id = ?", id)):
            return found[0]
        raise RejectNotFound(f"There is no reject {id}.", hint="List the rejects: headwater rejects list")

    def problems(self) -> Iterator[str]:
        """Read every reject and compare it with its checksum; what is wrong."""
        after = 0
        try:
            while found := self.list(limit=VERIFY_ROWS, after=after):
                yield from (
                    f"reject {each.id} of {each.stage} is {DAMAGED}" for each in found if each.is_damaged
                )
                after = found[-1].id
        except LogUnavailable as error:
            yield error.text

    def reasons(self, stage: str | None = None, *, after: int = 0) -> Iterator[tuple[int, str, float, str]]:
        """Id, stage, time and reason of every reject after an id, a bounded piece at a time."""
        sql = (
            "SELECT id, stage, at, reason FROM rejects WHERE id > ? AND ? IN ('', stage) ORDER BY id LIMIT ?"
        )
        while True:
            with self._disk():
                values = (after, stage or "", REASON_ROWS)
                rows = typed_rows(self._fresh(), sql, values, int, str, float, str)
            yield from ((row[0], row[1], row[2], row[3]) for row in rows)
            if len(rows) < REASON_ROWS:
                return
            after = rows[-1][0]

    def counts(self) -> dict[str, int]:
        """Open rejects per stage."""
        return self.totals().counts()

    def totals(self) -> Totals:
        """The numbers of open rejects, and of those that are gone, by stage."""
        totals = Totals()
        with self._disk():
            connection = self._fresh()
            if self._version == 1:  # no server of this release has opened the file yet
                for stage, count, size in select(connection, COUNT):
                    totals.add(stage, count, size)
            else:
                totals.load(connection)
        return totals

    def beyond(self, retention_bytes: int, before: float) -> int:
        """How many rejects of acknowledged events are beyond the bytes, or were refused `before`."""
        sql = (
            f"SELECT count(*) FROM (SELECT at, sum({SIZE}) OVER (ORDER BY at DESC, id DESC) AS bytes"  # noqa: S608
            f" FROM rejects WHERE {ACKNOWLEDGED}) WHERE at < ? OR bytes > ?"
        )
        with self._disk():
            return int(select(self._fresh(), sql, before, retention_bytes)[0][0])

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
            return self._read(where, *values)

    def _read(self, where: str, *values: Any) -> Sequence[Reject]:
        sql = f"SELECT {columns(self._version)} FROM rejects WHERE {where}"  # noqa: S608
        return [reject_of(row) for row in select(self._fresh(), sql, *values)]


class RejectStore(RejectReader):
    """Adds rejects, records what becomes of them, and keeps the store within its limits.

    Those of the gateway take `max_bytes`; those of acknowledged events take `retention_bytes` of their own,
    for `retention_hours`. What a limit drops is counted in the same transaction (G3).

    Every change is on disk when the call returns. Raises LogFull or LogUnavailable if the disk fails; nothing
    was changed then. The first write that meets damage moves the file to `damaged/` and begins a new one.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        retention_bytes: int | None = None,
        retention_hours: float | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        vfs: str | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._retention_bytes = retention_bytes
        self._retention_hours = retention_hours
        self._clock = clock or SystemClock()
        self._metrics = metrics or Metrics()
        self._inode = self._data_version = 0
        self._totals = Totals()
        self._pending: _Pending | None = None  # None: it must be read again
        self._file = ""
        self._lost: _LostFile | None = None  # it is to be counted as soon as the disk allows
        self._report = LossReport(self._metrics, self._clock)
        super().__init__(path, vfs=vfs)
        self._report.begin(self._totals)
        # From memory: a scrape of the metrics must not wait for the disk.
        self._metrics.gauge("rejects_open").set(lambda: sum(self._totals.counts().values()))

    def add(self, stage: str, items: Sequence[NewReject]) -> None:
        """Keep these events, in one transaction. An event of the log is kept once."""
        now = self._clock.now()

        def insert(connection: apsw.Connection) -> None:
            for item in items:
                details = msgspec.json.encode(item.details)
                connection.execute(
                    "INSERT OR IGNORE INTO rejects"
                    "(at, stage, position, received_at, reason, details, body, checksum)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(now, stage, item.position, item.received_at, item.reason, details, item.body),
                        checksum(stage, item.position, item.received_at, item.body),
                    ),
                )
                if connection.changes():
                    self._totals.add(
                        stage, 1, len(item.body) + len(item.reason.encode()) + len(details) + ROW_BYTES
                    )
            self._make_room(connection, acknowledged=is_acknowledged(stage))

        self._change(insert)
        crash_point("rejects.after_insert")

    def request_replay(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Request a replay of these (None: all of the stage, or of all stages); returns how many exist."""

        def mark(connection: apsw.Connection) -> int:
            where, values = "1", [()]  # type: str, list[tuple[Any, ...]]
            if ids is not None:
                where = "id IN (SELECT value FROM json_each(?))"
                values = [(msgspec.json.encode(ids).decode(),)]
            if stage is not None:
                where, values = f"{where} AND stage = ?", [(*each, stage) for each in values]
            marked = 0
            for each in values:
                connection.execute(f"UPDATE rejects SET replay_requested = 1 WHERE {where}", each)  # noqa: S608
                marked += connection.changes()
            return marked

        return self._change(mark)

    def requested(self, stage: str, limit: int = 100) -> Sequence[Reject]:
        """Rejects of the stage whose replay was requested. Damaged ones are refused: they stay rejects."""
        found = self._select("replay_requested AND stage = ? ORDER BY id LIMIT ?", stage, limit)
        for reject in found:
            if reject.is_damaged:
                self.failed_again(reject.id, DAMAGED)
        return [reject for reject in found if not reject.is_damaged]

    def replayed(self, *ids: int) -> None:
        """Remove rejects whose replay succeeded, in one transaction."""

        def remove(connection: apsw.Connection) -> None:
            for stage, count in self._delete_ids(connection, ids).items():
                self._settle(connection, stage, "delivered", count)

        self._change(remove)

    def failed_again(self, id: int, reason: str) -> None:
        """Keep a reject whose replay failed, with the new reason."""

        def update(connection: apsw.Connection) -> None:
            sql = "SELECT stage, length(CAST(reason AS BLOB)) FROM rejects WHERE id = ?"
            for stage, size in select(connection, sql, id):
                self._totals.add(stage, 0, len(reason.encode()) - size)
            connection.execute(
                "UPDATE rejects SET replay_requested = 0, tries = tries + 1, reason = ?, at = ? WHERE id = ?",
                (reason, self._clock.now(), id),
            )

        self._change(update)

    def drop(self, ids: Sequence[int] | None, stage: str | None = None) -> int:
        """Remove these (None: all of the stage, or of all stages) for good; returns how many existed."""
        now = self._clock.now()

        def delete(connection: apsw.Connection) -> int:
            if ids is not None:
                gone = self._delete_ids(connection, ids)
            elif stage is not None:
                gone = self._delete(connection, "stage = ? ORDER BY id", stage)
            else:
                gone = self._delete(connection, "1 ORDER BY id")
            for each, count in gone.items():
                self._totals.drop(each, "hand", count, now)
            return sum(gone.values())

        dropped = deleted = self._change(delete)
        while deleted == DROP_ROWS and ids is None:
            deleted = self._change(delete)
            dropped += deleted
        return dropped

    def rename_stage(self, stage: str, name: str) -> int:
        """Make all rejects of a stage those of another one; returns how many."""

        def rename(connection: apsw.Connection) -> int:
            sql = "SELECT id, position, received_at, body, checksum FROM rejects WHERE stage = ? LIMIT ?"
            found = select(connection, sql, stage, VERIFY_ROWS)
            for id, position, received_at, body, stored in found:
                is_whole = stored is not None and stored == checksum(stage, position, received_at, body)
                # a damaged one keeps a checksum that does not match
                fresh = checksum(name, position, received_at, body) if is_whole else stored
                connection.execute(
                    "UPDATE rejects SET stage = ?, checksum = ? WHERE id = ?", (name, fresh, id)
                )
            if not found:
                connection.execute("UPDATE settlements SET stage = ? WHERE stage = ?", (name, stage))
            size = f"SELECT sum({SIZE}) FROM rejects WHERE id = ?"  # noqa: S608
            moved = sum(int(select(connection, size, row[0])[0][0]) for row in found)
            self._totals.add(stage, -len(found), -moved)
            self._totals.add(name, len(found), moved)
            return len(found)

        renamed = 0
        while count := self._change(rename):
            renamed += count
        return renamed

    def has_work(self, stage: str) -> bool:
        """Whether the stage has requested replays or settlements; in memory unless the store has changed."""
        return stage in self._read_pending().stages

    def expire(self, now: float) -> None:
        """Drop rejects of acknowledged events that were refused more than `retention_hours` before `now`."""
        if self._retention_hours is None:
            return
        before = now - self._retention_hours * HOUR_SECONDS
        is_due = self._read_pending().oldest_at < before

        def delete(connection: apsw.Connection) -> int:
            return self._drop_oldest(connection, "age", f"{ACKNOWLEDGED} AND at < ? ORDER BY at", before)

        while is_due and self._change(delete) == DROP_ROWS:
            pass
        self._report.log(self._totals)

    def trim(self, now: float) -> int:
        """Drop the rejects of acknowledged events that are beyond the limits; returns how many."""
        open_before = sum(self.counts().values())
        self.expire(now)
        self._change(lambda connection: self._make_room(connection, acknowledged=True))
        return open_before - sum(self.counts().values())

    def positions(self, stage: str, first: int) -> dict[int, float]:
        """The positions at and after the first that are rejects of the stage, and when each was received."""
        sql = "SELECT position, received_at FROM rejects WHERE stage = ? AND position >= ?"
        with self._disk():
            return {row[0]: row[1] for row in typed_rows(self._fresh(), sql, (stage, first), int, float)}

    # --- what becomes of an outlet's rejects -----------------------------------------------------------

    @property
    def file_id(self) -> str:
        """Names this file: one that replaces it counts its settlements from 1 again."""
        return self._file

    def settlements(self, stage: str) -> Sequence[Settlement]:
        """What became of rejects of the stage, as far as `forget_settlements` was not called for it."""
        sql = "SELECT id, fate, events FROM settlements WHERE stage = ? ORDER BY id"
        with self._disk():
            return [Settlement(*row) for row in typed_rows(self._fresh(), sql, (stage,), int, str, int)]

    def forget_settlements(self, stage: str, last: int) -> None:
        """The cursor of the stage has counted the settlements up to this one."""
        sql = "DELETE FROM settlements WHERE stage = ? AND id <= ?"
        self._change(lambda connection: connection.execute(sql, (stage, last)))

    # --- state, from memory ----------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Open rejects per stage, from memory unless another process has changed the store."""
        return self.totals().counts()

    def totals(self) -> Totals:
        with self._disk():
            self._fresh()
            return self._totals.copy()

    @property
    def known_totals(self) -> Totals:
        """The figures as of the last look or change: never waits for the disk."""
        return self._totals

    def trouble(self) -> str | None:
        """Why acknowledged events are lost now: for an hour after limits or damage took the last one."""
        return self._report.trouble()

    def report_stage(self, stage: str) -> None:
        """Report the counters of a stage from now on, although it may have no rejects yet."""
        self._report.begin_stage(stage)

    def close(self) -> None:
        self._report.log(self._totals, last=True)
        super().close()

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
                known = self._known()
                self._set_aside(error, known.file)
                connection = self._connect()
                self._count_lost(connection, known)
                return connection

    def _set_aside(self, error: Exception, file: str) -> None:
        """Move the damaged file to `damaged/`; the rejects that can still be read take its place."""
        salvaged = salvage(self._path, file, vfs=self._vfs)
        move_to_damaged(self._path, error)
        salvaged.rename(self._path)
        sync_folder(self._path.parent)

    def _known(self) -> _LostFile:
        """What a damaged file contained, as far as it can be read."""
        known = _LostFile("", self._path.stat().st_ino, Totals())
        try:
            connection = connect(self._path, vfs=self._vfs, reader=True)
            try:
                known = known._replace(file=file_id(connection))
                known.totals.load(connection)
            finally:
                connection.close()
        except (apsw.Error, ValueError, TypeError) as error:
            logger.error("How many rejects %s contained is not known: %s", self._path, error)
        return known

    def _removed(self) -> _LostFile:
        """What the file contained that this process has open, and that is not on its path any more."""
        totals = Totals()
        try:
            totals.load(self._connection)  # with what other processes wrote before
        except (apsw.Error, ValueError, TypeError):
            totals = self._totals.copy()
        return _LostFile(self._file, self._inode, totals)

    def _count_lost(self, connection: apsw.Connection, lost: _LostFile) -> None:
        """Count the rejects of a file that this one replaces as dropped, unless another process has."""
        with self._transaction(connection):
            name = f"counted {lost.file} {lost.inode}"
            connection.execute("INSERT OR IGNORE INTO notes VALUES (?, '')", (name,))
            if not connection.changes():
                return
            # A new file has none of its rejects; an older copy, or one of those that could be read, has some.
            is_same = self._file == lost.file
            is_salvaged = bool(select(connection, "SELECT 1 FROM notes WHERE name = ?", SALVAGED + lost.file))
            kept = self._totals.counts() if is_same or is_salvaged else {}
            self._totals.add_dropped(lost.totals, is_included=is_same)
            for stage, rejects in lost.totals.counts().items():
                if (gone := rejects - kept.get(stage, 0)) > 0:
                    self._totals.drop(stage, "damage", gone, self._clock.now())
                    self._settle(connection, stage, "dropped_damage", gone)
        rejects = sum(lost.totals.counts().values())
        logger.error("%d of its %d rejects are still there.", min(rejects, sum(kept.values())), rejects)

    def _connect(self) -> apsw.Connection:
        if not self._path.exists() and salvage_path(self._path).exists():
            salvage_path(self._path).rename(self._path)  # the process ended between the two moves
        connection = connect(self._path, vfs=self._vfs, create=True)
        try:
            connection.pragma("auto_vacuum", 2)  # incremental; has an effect on a new file only
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "FULL")
            migrate(connection, MIGRATIONS, self._path)
            self._version = len(MIGRATIONS)
            self._file = file_id(connection)
            self._load(connection)
            self._check(connection)
            self._inode = self._path.stat().st_ino
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: apsw.Connection) -> None:
        """Pass over every row and index, so that damage shows here; an older release keeps no figures."""
        findings = [str(finding) for (finding,) in select(connection, "PRAGMA integrity_check(1)")]
        if findings != ["ok"]:
            raise ValueError("; ".join(findings))

        def stored() -> dict[str, Stored]:
            rows = typed_rows(connection, COUNT, (), str, int, int)
            return {stage: Stored(count, size) for stage, count, size in rows}

        if stored() != self._totals.stored:
            with self._transaction(connection):
                counted = stored()
                self._totals.stored = {stage: Stored() for stage in self._totals.stored} | counted

    def _load(self, connection: apsw.Connection) -> None:
        """Read the figures, which later changes of this process keep up to date."""
        self._data_version = int(connection.pragma("data_version"))
        self._pending = None
        self._totals.load(connection)

    def _fresh(self) -> apsw.Connection:
        """The connection to the file that exists now; the figures include changes of other processes."""
        if not self._is_there():
            self._lost = self._lost or self._removed()
            self._connection.close()
            self._connection = self._open()
        elif int(self._connection.pragma("data_version")) != self._data_version:
            self._load(self._connection)
            self._report.count(self._totals)
        if self._lost is not None:
            self._count_lost(self._connection, self._lost)
            self._lost = None
        return self._connection

    def _read_pending(self) -> _Pending:
        """What each outlet looks for every second: hundreds of them read it from memory."""
        with self._disk():
            connection = self._fresh()
            if self._pending is None:
                requested = select(connection, "SELECT DISTINCT stage FROM rejects WHERE replay_requested")
                settled = select(connection, "SELECT DISTINCT stage FROM settlements")
                sql = f"SELECT at FROM rejects WHERE {ACKNOWLEDGED} ORDER BY at LIMIT 1"  # noqa: S608
                oldest = select(connection, sql)
                self._pending = _Pending(
                    frozenset(stage for (stage,) in (*requested, *settled)),
                    oldest[0][0] if oldest else math.inf,
                )
            return self._pending

    def _is_there(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _change(self, change: Callable[[apsw.Connection], T]) -> T:
        with self._disk():
            try:
                done = self._transact(change)
            except (apsw.Error, ValueError) as error:
                if not is_damage(error):
                    raise
                self._replace(error)  # an event that is refused now must still be kept (G6)
                done = self._transact(change)
        self._report.log(self._totals)
        return done

    def _read(self, where: str, *values: Any) -> Sequence[Reject]:
        try:
            return super()._read(where, *values)
        except (apsw.Error, ValueError) as error:
            if not is_damage(error):
                raise
            self._replace(error)
            return super()._read(where, *values)

    def _replace(self, error: Exception) -> None:
        """Set the damaged file aside, unless another process has done so."""
        self._connection.close()
        lost = _LostFile(self._file, self._inode, self._totals.copy())
        with self._opening:
            if self._is_there():
                self._set_aside(error, self._file)
        self._connection = self._open()
        self._count_lost(self._connection, lost)

    def _transact(self, change: Callable[[apsw.Connection], T]) -> T:
        connection = self._fresh()
        with self._transaction(connection):
            return change(connection)

    @contextmanager
    def _transaction(self, connection: apsw.Connection) -> Iterator[None]:
        """All or nothing, the figures in memory included."""
        connection.execute("BEGIN IMMEDIATE")
        self._pending = None
        before = self._totals.copy()
        try:
            if int(connection.pragma("data_version")) != self._data_version:
                self._load(connection)  # another process was faster
            stored = self._totals.copy()
            yield
            self._totals.store(connection, stored)
            # read to its end: each row of this statement frees one page
            select(connection, "PRAGMA incremental_vacuum")
            connection.execute("COMMIT")
        except BaseException:
            self._totals = before
            self._data_version = -1  # read again: what was loaded may be gone
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._report.count(self._totals)

    def _delete_ids(self, connection: apsw.Connection, ids: Sequence[int]) -> dict[str, int]:
        gone: dict[str, int] = {}
        for first in range(0, len(ids), DROP_ROWS):
            some = msgspec.json.encode(ids[first : first + DROP_ROWS]).decode()
            found = self._delete(connection, "id IN (SELECT value FROM json_each(?))", some)
            for stage, count in found.items():
                gone[stage] = gone.get(stage, 0) + count
        return gone

    def _delete(self, connection: apsw.Connection, where: str, *values: Any) -> dict[str, int]:
        """Delete at most `DROP_ROWS` rejects, in the order given; how many of each stage it were."""
        sql = f"id IN (SELECT id FROM rejects WHERE {where} LIMIT {DROP_ROWS})"  # noqa: S608
        rows = select(connection, f"DELETE FROM rejects WHERE {sql} RETURNING stage, {SIZE}", *values)  # noqa: S608
        gone: dict[str, int] = {}
        for stage, size in rows:
            self._totals.add(stage, -1, -size)
            gone[stage] = gone.get(stage, 0) + 1
        return gone

    def _drop_oldest(self, connection: apsw.Connection, reason: Reason, where: str, *values: Any) -> int:
        gone = self._delete(connection, where, *values)
        for stage, count in gone.items():
            self._totals.drop(stage, reason, count, self._clock.now())
            self._settle(connection, stage, f"dropped_{reason}", count)
        return sum(gone.values())

    def _make_room(self, connection: apsw.Connection, *, acknowledged: bool) -> None:
        """Drop the oldest rejects beyond the limit, of the same kind alone."""
        limit = self._retention_bytes if acknowledged else self._max_bytes
        if limit is None:
            return
        where = f"{ACKNOWLEDGED} ORDER BY at, id" if acknowledged else f"stage = '{GATEWAY}' ORDER BY id"
        while (excess := self._totals.bytes(acknowledged=acknowledged) - limit) > 0:
            count = 0
            sizes = select(connection, f"SELECT {SIZE} FROM rejects WHERE {where} LIMIT 100")  # noqa: S608
            for (size,) in sizes:
                count += 1
                excess -= size
                if excess <= 0:
                    break
            oldest = f"id IN (SELECT id FROM rejects WHERE {where} LIMIT {count})"  # noqa: S608
            if not self._drop_oldest(connection, "bytes", oldest):
                return

    def _settle(self, connection: apsw.Connection, stage: str, fate: str, events: int) -> None:
        if is_acknowledged(stage):
            connection.execute(
                "INSERT INTO settlements(stage, fate, events) VALUES (?, ?, ?)", (stage, fate, events)
            )
