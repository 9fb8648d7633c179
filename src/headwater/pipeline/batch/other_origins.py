"""The events that a destination has, or will get, by another way than the archive that a backfill loads.

An event may be in the files of batch mode, in the destination's own queue and in the archives of several
streams. Each is another place to the ledger, so it is the same event by its bytes alone (G5).
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import zlib
from bisect import bisect
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.destinations.base import Destination, load_destination
from headwater.log.files.checked_lines import LineReader
from headwater.log.files.file_status import FileStatus, is_checked
from headwater.log.files.layout import ArchivedFile, EventFolder, archived_files, unprocessed
from headwater.log.files.subscriptions import Subscriptions
from headwater.log.streams import StreamCursor, identity_of
from headwater.pipeline.batch.unpacked_file import Selection, UnpackedFile
from headwater.pipeline.load import load_id
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange, ledger_id_range
from headwater.pipeline.stream.sources import QueueSource
from headwater.settings import DestinationSettings, Settings

logger = logging.getLogger(__name__)

_AT_ONCE = 10_000


class KnownEvents:
    """Digests of events, on disk: an archive may have more than memory holds."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "known.db", isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE known (digest BLOB PRIMARY KEY) WITHOUT ROWID"
        )
        self._is_empty = True

    def __contains__(self, event: object) -> bool:
        if self._is_empty or not isinstance(event, bytes):
            return False
        found = self._database.execute("SELECT 1 FROM known WHERE digest = ?", (_digest(event),))
        return found.fetchone() is not None

    def add(self, events: Iterable[bytes]) -> None:
        """Add events in one transaction for many."""
        waiting: list[tuple[bytes]] = []
        for event in events:
            waiting.append((_digest(event),))
            if len(waiting) >= _AT_ONCE:
                self._save(waiting)
        self._save(waiting)

    def close(self) -> None:
        self._database.close()

    def _save(self, digests: list[tuple[bytes]]) -> None:
        if digests:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", digests)
            self._database.execute("COMMIT")
            self._is_empty = False
            digests.clear()


class OtherOrigins:
    """Reads what one destination has by other ways than the given files of the archive."""

    def __init__(
        self,
        settings: Settings,
        destination: DestinationSettings,
        files: list[ArchivedFile],
        selection: Selection,
        staging: Staging,
    ) -> None:
        self._settings, self._own, self._staging = settings, destination, staging
        self._selection = selection
        self._origins = {_origin(file) for file in files}

    def add_to(self, known: KnownEvents) -> None:
        """Add the events; in the order of their way, so that none escapes that moves on meanwhile."""
        if ("incoming", "") not in self._origins:
            known.add(self._waiting_in_files())
        others = [
            file
            for file in archived_files(self._settings.events_dir)
            if file.kind != "failed"
            and file.at >= self._selection.since
            and _origin(file) not in self._origins
        ]
        is_queue_read = ("streaming-archive", self._own.id) not in self._origins and self._queue.is_dir()
        if not others and not is_queue_read:
            return
        destination = load_destination(self._own)
        destination.connect()
        try:
            ledger = _Ledger(destination)
            if is_queue_read:
                known.add(self._in_queue(ledger))
            if not ledger.is_empty:
                for file in others:
                    known.add(self._in_archive(file, ledger))
        finally:
            destination.close()

    @property
    def _queue(self) -> Path:
        return EventFolder(self._settings.events_dir).queue(self._own.id)

    def _waiting_in_files(self) -> Iterator[bytes]:
        """The events of files for the destination that are being written, or wait for the pipeline."""
        folder, own = EventFolder(self._settings.events_dir), self._own
        subscriptions = Subscriptions.load(folder.path)
        for token, path in folder.active_files().items():
            wanted = subscriptions.wanted_by(token) if subscriptions is not None else ()
            if own.id in wanted or (own.is_batch and own.wants(token)):
                yield from _lines(path, None)
        for file in unprocessed(folder.path):
            if file.kind == "incoming":
                wanted = FileStatus.load(file).wanted_by or ()
                if own.id in wanted or (own.is_batch and own.wants(file.id)):
                    yield from _lines(file.path, is_checked(file.path))

    def _in_queue(self, ledger: _Ledger) -> Iterator[bytes]:
        """The events of the own queue that are loaded, or will be."""
        source = QueueSource(self._settings, self._own)
        cursor = StreamCursor.load(self._queue, identity_of(self._queue), source.oldest())
        done = source.agreed(cursor)
        for commit in source.read(source.oldest(), source.newest()):
            key = PositionRange(cursor.queue, self._own.id, 0, 0, commit.epoch).key
            for position, body in enumerate(commit.bodies, commit.first):
                if position >= done or ledger.has(key, position):
                    yield body

    def _in_archive(self, file: ArchivedFile, ledger: _Ledger) -> Iterator[bytes]:
        """The selected events of a file that the ledger knows."""
        with self._staging.folder() as folder:
            path = EventFolder(folder).incoming / file.path.stem
            path.parent.mkdir()
            unpacked = UnpackedFile(file, path, self._selection, is_own=_is_own(file, self._own))
            try:
                unpacked.unpack()
            except (OSError, EOFError, zlib.error) as error:
                # what cannot be read is not known to be there; the backfill of that origin says so too
                logger.error("%s cannot be unpacked: %s.", file.path.name, error)
                return
            is_whole = ledger.has_whole(unpacked, self._own.id)
            for place, event in unpacked.events():
                key = PositionRange(place.key, self._own.id, 0, 0, place.epoch).key
                if is_whole or ledger.has(key, place.number):
                    yield event


class _Ledger:
    """Which places the ledger of a destination has."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._totals = destination.totals()
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever loaded."""
        return not self._totals and not self._destination.loaded_between("0", "g")

    def has(self, key: str, position: int) -> bool:
        """Whether a table has the event at a place."""
        if key not in self._ranges:
            ids = self._destination.loaded_between(*ledger_id_range(key, 0))
            self._ranges[key] = LoadedRanges(ids).of_any_table()
        ranges = self._ranges[key]
        at = bisect(ranges, (position, 1 << 62)) - 1
        return at >= 0 and position < ranges[at][1]

    def has_whole(self, file: UnpackedFile, id: str) -> bool:
        """Whether a table has a file by a load of batch mode."""
        tables = {table for destination, table in file.status.pairs if destination == id}
        # a file that was loaded by pieces is not in the ledger by its own name
        if any(table in self._totals for table in file.status.cuts_of(id)):
            return True
        ids = [load_id(file.identity, id, table) for table in sorted(tables | set(self._totals))]
        return bool(self._destination.loaded(ids))


def _is_own(file: ArchivedFile, destination: DestinationSettings) -> bool:
    return file.kind == "streaming-archive" and file.id == destination.id


def _origin(file: ArchivedFile) -> tuple[str, str]:
    return file.kind, "" if file.kind == "incoming" else file.id


def _lines(path: Path, is_checked: bool | None) -> Iterator[bytes]:
    try:
        for line in LineReader(path, is_checked=is_checked, leaves_torn=is_checked is None):
            yield line.event
    except FileNotFoundError:
        return  # it moves on, to where the caller looks next


def _digest(event: bytes) -> bytes:
    return hashlib.blake2b(event.strip(), digest_size=16).digest()
