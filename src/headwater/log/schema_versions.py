"""The schema versions of the files of a data folder, before a server opens and migrates them. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from headwater.log.files.layout import EventFolder
from headwater.log.queue import cursors, partition_file
from headwater.log.queue.partition_file import partition_paths
from headwater.log.queue.sqlite import files_of, look
from headwater.log.rejects import schema

MIGRATED = ("index.db", "rejects.db", "graph.db")
_MAGIC = b"SQLite format 3\0"
_VERSION = slice(60, 64)  # of the header: `user_version`


class SchemaVersion(NamedTuple):
    """A file, the version that it has, and the version that this release writes."""

    path: Path
    found: int
    known: int

    @property
    def is_newer(self) -> bool:
        """Whether a newer release wrote it: this one does not open it."""
        return self.found > self.known


def other_versions(
    data_dir: Path, events_dir: Path, further: Iterable[tuple[Path, int]] = ()
) -> Iterator[SchemaVersion]:
    """The files that have another version than this release writes.

    Partitions are never migrated: an older one is read as it is. `further` are databases of other stages,
    with the version that this release writes.
    """
    for folder in (data_dir / "log", *EventFolder(events_dir).queues().values()):
        files = [(folder / "index.db", len(cursors.MIGRATIONS))]
        files += [(path, len(partition_file.MIGRATIONS)) for path in partition_paths(folder)[-1:]]
        for path, known in files:
            yield from _other(path, known)
    for path, known in ((data_dir / "rejects.db", len(schema.MIGRATIONS)), *further):
        yield from _other(path, known)


def _other(path: Path, known: int) -> Iterator[SchemaVersion]:
    found = _version(path)
    if found and found != known:
        yield SchemaVersion(path, found, known)


def _version(path: Path) -> int:
    """The schema version; 0 for a file that is missing, new, or no database."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
        if not header.startswith(_MAGIC):
            return 0
        wal, _ = files_of(path)[1:3]
        if not wal.exists() or not wal.stat().st_size:
            return int.from_bytes(header[_VERSION])
        # a server was killed, or runs: the header may be old
        connection = look(path)
    except (OSError, apsw.Error):
        return 0
    try:
        return int(connection.pragma("user_version"))
    except apsw.Error:
        return 0
    finally:
        connection.close()
