"""The SQLite file of the graph: one writer, any number of readers."""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import apsw
import orjson

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, LogUnavailable
from headwater.graph.ingest.event_parser import EventParser, FacetCache
from headwater.graph.store.aliases import update_aliases
from headwater.graph.store.retention import clean_up
from headwater.graph.store.schema import MIGRATIONS
from headwater.log.queue.sqlite import (
    check_version,
    classify,
    connect,
    is_damage,
    migrate,
    move_to_damaged,
    select,
)
from headwater.settings import GraphSettings
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import FolderLock

logger = logging.getLogger(__name__)

FILE = "graph.db"
CHECK_SECONDS = 0.5  # at the start; a graph of a million events takes longer
CACHE_KIB = 16 * 1024  # of SQLite's pages in memory (G8)


class IngestResult(NamedTuple):
    """How many events were read, invalid, and of an impossible time; the parts left out, by kind."""

    events: int
    invalid: int
    mistimed: int = 0
    left_out: Mapping[str, int] = MappingProxyType({})

    def plus(self, other: IngestResult) -> IngestResult:
        """The sum of two results."""
        return IngestResult(
            self.events + other.events,
            self.invalid + other.invalid,
            self.mistimed + other.mistimed,
            Counter(self.left_out) + Counter(other.left_out),
        )


class GraphDatabase:
    """The writer. One process may have it open; used by one thread at a time.

    Ingesting is idempotent and does not depend on order. A batch and the position after it are committed
    together, and are on disk when `ingest` returns. Raises LogFull or LogUnavailable on a disk error: then
    nothing of the batch is written, and the caller may retry. Without `durable`, for tests, a
    commit is not synced to disk.
    """

    def __init__(
        self,
        folder: Path,
        settings: GraphSettings | None = None,
        *,
        clock: Clock | None = None,
        durable: bool = True,
    ) -> None:
        self.folder = folder
        self._settings = settings or GraphSettings()
        self.retention_days = self._settings.retention_days
        self._clock = clock or SystemClock()
        self._cache = FacetCache()
        self._durable = durable
        with ExitStack() as undo:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = FolderLock(folder)
                undo.callback(lock.release)
                self._connection = _open(folder / FILE, durable)
            except (apsw.Error, OSError) as error:
                raise classify(error, folder) from error
            undo.pop_all()
        self._lock = lock

    @property
    def position(self) -> int:
        """The position in the log of the first event that is not ingested; 0 for a new graph."""
        return int(_meta(self._connection, "position"))

    @property
    def last_received_at(self) -> float:
        """When the last ingested event was received; 0 if that is not known."""
        return float(_meta(self._connection, "received_at"))

    def ingest(self, bodies: Iterable[bytes], position: int | None = None) -> IngestResult:
        """Ingest events that are received now, as `ingest_received` does."""
        now = self._clock.now()
        return self.ingest_received(((now, body) for body in bodies), position)

    def ingest_received(
        self, events: Iterable[tuple[float, bytes]], position: int | None = None
    ) -> IngestResult:
        """Ingest events in one transaction, together with the position after the last of them.

        Each comes with the time at which it was received, in seconds since 1970.
        """
        with _collector_paused():
            return self._ingest(events, position)

    def _ingest(self, events: Iterable[tuple[float, bytes]], position: int | None) -> IngestResult:
        parser = EventParser(self._settings.max_facet_bytes, self._cache)
        last_at = 0.0
        for received_at, body in events:
            parser.parse(body, received_at)
            last_at = received_at
        try:
            parser.finish()
            with self._connection:
                parser.changes.write(self._connection, self._cache.ids)
                update_aliases(self._connection, {owner for owner, _ in parser.changes.links.added_keys()})
                if position is not None:
                    put = "INSERT OR REPLACE INTO meta VALUES ('position', ?), ('received_at', ?)"
                    self._connection.execute(put, (str(position), repr(last_at)))
                crash_point("graph.before_commit")
        except apsw.Error as error:
            self._cache.clear()
            raise self._failed(error) from error
        except Exception as error:
            self._cache.clear()
            if self._is_damaged():
                raise self._failed(ValueError(f"{type(error).__name__}: {error}")) from error
            raise
        except BaseException:
            self._cache.clear()
            raise
        crash_point("graph.after_commit")
        self._cache.trim()
        return IngestResult(parser.events, parser.invalid, parser.mistimed, dict(parser.left_out))

    def clean_up(self, now: float | None = None) -> int:
        """Remove rows beyond the retention limits; returns how many.

        `now` is the time by which rows age; without it, the clock's, which may have leapt.
        """
        if now is None:
            now = self._clock.now()
        try:
            return sum(clean_up(self._connection, self._settings, int(now * 1_000_000)))
        except apsw.Error as error:
            raise self._failed(error) from error
        finally:
            self._cache.clear()

    def _is_damaged(self) -> bool:
        """Whether a search shows damage, after an error that may also be a fault of ours."""
        try:
            _check(self._connection)
        except (apsw.Error, ValueError) as error:
            return is_damage(error)
        return False

    def _failed(self, error: apsw.Error | ValueError) -> HeadwaterError:
        """The error for the caller; of a damaged file only after a new one has taken its place."""
        may_be_damage = isinstance(error, (apsw.ConstraintError, apsw.MismatchError))
        if not is_damage(error) and not (may_be_damage and self._is_damaged()):
            return classify(error, self.folder)
        self._connection.close()
        self._connection = _replace(self.folder / FILE, error, self._durable)
        return LogUnavailable(
            f"The graph in {self.folder} was damaged ({error}).",
            hint="It is rebuilt from the events that the log still holds.",
        )

    def close(self) -> None:
        """Close the file and release its lock."""
        self._connection.close()
        self._lock.release()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No search for cycles: a batch makes many objects, and none of them are in one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(path: Path, durable: bool) -> apsw.Connection:
    try:
        return _writer(path, durable)
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):
            raise
        return _replace(path, error, durable)


def _replace(path: Path, error: Exception, durable: bool) -> apsw.Connection:
    """Set a damaged graph aside and begin a new one: only events that the log has dropped are lost (G9)."""
    logger.error("The graph is damaged (%s); it is rebuilt from the events that the log still holds.", error)
    separations = _separations(path)
    move_to_damaged(path, error)
    connection = _writer(path, durable)
    connection.executemany("INSERT OR IGNORE INTO separations VALUES (?, ?, ?)", separations)
    return connection


def _separations(path: Path) -> list[tuple[Any, ...]]:
    """The decisions of users in a damaged file, as far as they can be read: no event has them."""
    try:
        with closing(connect(path, reader=True)) as connection:
            rows = select(connection, "SELECT kept, apart, at FROM separations")
            return [row for row in rows if all(type(value) is int for value in row)]
    except (apsw.Error, ValueError) as error:
        logger.error("Which names were unlinked is not known (%s): unlink them again.", error)
        return []


def _writer(path: Path, durable: bool) -> apsw.Connection:
    connection = connect(path, create=True)
    try:
        connection.pragma("page_size", 8192)  # only affects a new file
        # FULL: a batch is on disk when `ingest` returns, and then the log may drop its events.
        connection.pragma("synchronous", "FULL" if durable else "OFF")
        connection.pragma("journal_mode", "wal")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("temp_store", 2)
        migrate(connection, MIGRATIONS, path)
        select(connection, "SELECT 1 FROM dataset_names, jobs, runs, meta LIMIT 1")
        int(_meta(connection, "position")), float(_meta(connection, "received_at"))
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _meta(connection: apsw.Connection, name: str) -> str:
    """A fact about the file; 0 in a new one."""
    rows = select(connection, "SELECT value FROM meta WHERE name = ?", name)
    return str(rows[0][0]) if rows else "0"


def _check(connection: apsw.Connection) -> None:
    """ValueError if the structure of the file is damaged, as far as a moment's search shows."""
    until = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        problems = [text for (text,) in select(connection, "PRAGMA quick_check(3)") if text != "ok"]
    except apsw.InterruptError:
        return  # what comes later is found by the writer or a query
    finally:
        connection.set_progress_handler(None)
    if problems:
        raise ValueError("; ".join(map(str, problems)))


def open_reader(folder: Path) -> apsw.Connection:
    """A read-only connection, with or without a running writer."""
    path = folder / FILE
    if not path.exists():
        raise HeadwaterError(
            f"There is no graph in {folder}: no lineage event was ingested here.",
            hint="Set `graph.enabled` and restart the server, or run `headwater lineage import FILE`.",
        )
    try:
        connection = connect(path, reader=True)
        if check_version(connection, MIGRATIONS, path) < len(MIGRATIONS):
            raise HeadwaterError(
                f"{path} was written by an earlier release, and the first start brings it up to date.",
                hint="Start the server once, or run `headwater lineage import FILE`.",
            )
        connection.pragma("cache_size", -CACHE_KIB // 4)
        return connection
    except apsw.Error as error:
        raise classify(error, folder) from error


def rows_for(
    connection: apsw.Connection, sql: str, ids: Iterable[Any], *values: Any
) -> list[tuple[Any, ...]]:
    """The rows of a query whose first argument is read by `json_each(?1)`: many ids, one statement.

    `CROSS JOIN` after it stops SQLite from starting with another table and reading that whole.
    """
    return select(connection, sql, orjson.dumps(list(ids)).decode(), *values)
