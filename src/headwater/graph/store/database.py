"""The store of the graph: one SQLite file, one writer, any number of readers beside it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import apsw

from headwater.clock import Clock, SystemClock
from headwater.crash_points import crash_point
from headwater.durable_files import FolderLock
from headwater.errors import HeadwaterError
from headwater.graph.ingest.event_parser import Batch
from headwater.graph.ingest.facet_cache import Memory
from headwater.graph.store.aliases import relink
from headwater.graph.store.retention import collect
from headwater.graph.store.schema import MIGRATIONS
from headwater.graph.store.write_changes import write
from headwater.log.queue.damaged import move_aside
from headwater.log.queue.sqlite import check_version, classify, connect, is_damage, migrate, select
from headwater.settings import GraphSettings

__all__ = ["FILE", "Folded", "Graph", "open_reader"]

log = logging.getLogger(__name__)

FILE = "graph.db"
CACHE_KIB = 16 * 1024  # of SQLite's pages in memory (G8)


class Folded(NamedTuple):
    """What became of a batch: events that were read, and those that could not be."""

    events: int
    unreadable: int


class Graph:
    """The writer. One process may have it open; used by one thread at a time.

    Folding is idempotent and indifferent to order; a batch and the position behind it are committed together,
    and are on disk when `fold` returns. Raises LogFull or LogUnavailable where the disk stands in the way:
    nothing of the batch was taken then, and trying again is right.
    """

    def __init__(
        self, folder: Path, settings: GraphSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self._settings = settings or GraphSettings()
        self._clock = clock or SystemClock()
        self._memory = Memory()
        with ExitStack() as undo:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = FolderLock(folder)
                undo.callback(lock.release)
                self._connection = _open(folder / FILE)
            except (apsw.Error, OSError) as error:
                raise classify(error, folder) from error
            undo.pop_all()
        self._lock = lock

    @property
    def position(self) -> int:
        """The position in the log of the first event that is not folded; 0 for a new graph."""
        rows = select(self._connection, "SELECT value FROM notes WHERE name = 'position'")
        return int(rows[0][0]) if rows else 0

    def fold(self, bodies: Iterable[bytes], position: int | None = None) -> Folded:
        """Fold events in one transaction, together with the position behind the last of them."""
        batch = Batch(self._settings.max_facet_bytes, self._memory)
        for body in bodies:
            batch.add(body)
        try:
            batch.finish()
            with self._connection:
                write(self._connection, batch, self._memory.ids)
                relink(self._connection, batch.linked)
                if position is not None:
                    put = "INSERT OR REPLACE INTO notes VALUES ('position', ?)"
                    self._connection.execute(put, (str(position),))
                crash_point("graph.before_commit")
        except apsw.Error as error:
            self._memory.clear()
            raise classify(error, self.folder) from error
        except BaseException:
            self._memory.clear()
            raise
        crash_point("graph.after_commit")
        self._memory.trim()
        return Folded(batch.events, batch.unreadable)

    def collect(self) -> int:
        """Remove what is too old or too much; how many rows went."""
        now = int(self._clock.now() * 1_000_000)
        try:
            return sum(collect(self._connection, self._settings, now))
        except apsw.Error as error:
            raise classify(error, self.folder) from error
        finally:
            self._memory.clear()

    def close(self) -> None:
        """Close the file and let others have it."""
        self._connection.close()
        self._lock.release()


def _open(path: Path) -> apsw.Connection:
    try:
        return _writer(path)
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):
            raise
        log.error("The graph is damaged (%s); it begins anew from what the log still holds.", error)
        move_aside(path, error)  # nothing is lost but what the log no longer has (G9)
        return _writer(path)


def _writer(path: Path) -> apsw.Connection:
    connection = connect(path, create=True)
    try:
        connection.pragma("page_size", 8192)  # has an effect on a new file only
        connection.pragma("journal_mode", "wal")
        # On disk when `fold` returns: the log may drop the events then.
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("temp_store", 2)
        migrate(connection, MIGRATIONS, path)
        select(connection, "SELECT 1 FROM names, jobs, runs, notes LIMIT 1")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(folder: Path) -> apsw.Connection:
    """A connection that only reads, beside a writer or without one."""
    path = folder / FILE
    if not path.exists():
        raise HeadwaterError(
            f"There is no graph in {folder}: no lineage event was folded here.",
            hint="Set `graph.enabled` and restart the server, or type `headwater lineage import FILE`.",
        )
    try:
        connection = connect(path, reader=True)
        check_version(connection, MIGRATIONS, path)
        connection.pragma("cache_size", -CACHE_KIB // 4)
        return connection
    except apsw.Error as error:
        raise classify(error, folder) from error
