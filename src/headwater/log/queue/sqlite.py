"""How this stage opens SQLite files, what SQLite's errors mean, and where damaged files are kept (G9)."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from headwater.errors import LogFull, LogTooNew, LogUnavailable
from headwater.log.queue.sqlite_fork_guard import connection_class
from headwater.system.permissions import find_denied, permission_hint

logger = logging.getLogger(__name__)

# The errors of a damaged file: not a database, a page that contradicts the B-tree, a missing table (our
# statements have no other fault). A row with a wrong checksum raises ValueError (commit_format.unpack).
DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SchemaChangeError,
    apsw.SQLError,
    ValueError,
)

# Errors of a connection that cannot make or extend the shared memory of a file.
NO_SHARED_MEMORY = (
    apsw.SQLITE_FULL,
    apsw.SQLITE_CANTOPEN,
    apsw.SQLITE_READONLY_CANTINIT,
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMMAP,
)

LOW_SPACE_BYTES = 1024 * 1024  # below this an I/O error is read as "disk full", whatever its code

Step = Callable[[apsw.Connection], None]


def connect(
    path: Path,
    *,
    vfs: str | None = None,
    create: bool = False,
    reader: bool = False,
    immutable: bool = False,
) -> apsw.Connection:
    """A connection with the settings every file of ours has.

    A reader never checkpoints: one connection per file does, which is also what keeps SQLite's
    WAL-reset bug (before 3.51.3) out of reach. `immutable` is for a file that is no longer written: no
    locks, no companions.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    name = str(path)
    is_read_only = reader and not os.access(path.parent, os.W_OK)
    if immutable or is_read_only:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        # On a read-only disk, or as another user, SQLite cannot make the companions of a file. With a WAL
        # they are there; without one all of it is in the file.
        name = _uri(path, "immutable=1" if immutable or not _has_wal(path) else "mode=ro")
    connection = connection_class()(name, flags=flags, vfs=vfs)
    connection.set_busy_timeout(5000)
    if reader:
        _only_read(connection)
    return connection


def look(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection for a command that looks: it makes no file, also not for a moment, and needs no space.

    For one short look: it may not see what a process that begins to write later adds. Readers that go on use
    `connect`.
    """
    _, wal, shared_memory, journal = files_of(path)
    if journal.exists():
        return connect(path, vfs=vfs, reader=True)  # the file is being created
    if not _has_wal(path) and not (wal.exists() and shared_memory.exists()):
        return connect(path, vfs=vfs, reader=True, immutable=True)  # no process uses it; all is in the file
    if not shared_memory.exists():
        return _with_index_in_memory(path)
    try:
        connection = connect(path, vfs=vfs, reader=True)
        try:
            connection.pragma("user_version")
        except BaseException:
            connection.close()
            raise
    except (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        if getattr(error, "extendedresult", 0) not in NO_SHARED_MEMORY:
            raise
        return _with_index_in_memory(path)
    return connection


def _with_index_in_memory(path: Path) -> apsw.Connection:
    """A connection to a file with a WAL that no process uses, by an index of the WAL in this process' memory.

    Without locks: an exclusive one, which SQLite wants here, would keep a server from starting.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = connection_class()(_uri(path, "mode=ro"), flags=flags, vfs="unix-none")
    _only_read(connection)
    connection.pragma("locking_mode", "exclusive")
    return connection


def _only_read(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("query_only", 1)


def _uri(path: Path, parameter: str) -> str:
    return f"file:{quote(str(path.absolute()))}?{parameter}"


def _has_wal(path: Path) -> bool:
    try:
        return files_of(path)[1].stat().st_size > 0
    except OSError:
        return False


def select(connection: apsw.Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query, read to the end so that no read transaction stays open."""
    return connection.execute(sql, values).fetchall()


def typed(row: Sequence[Any], *types: type) -> Sequence[Any]:
    """The row, if its values have these types; ValueError if not.

    A damaged page may still decode, to NULLs or to values of another type than the column's.
    """
    if len(row) != len(types) or any(type(value) is not each for value, each in zip(row, types, strict=True)):
        raise ValueError("a row has values of the wrong types")
    return row


def typed_rows(
    connection: apsw.Connection, sql: str, values: Sequence[Any], *types: type
) -> list[Sequence[Any]]:
    """All rows of a query, which must have values of these types."""
    return [typed(row, *types) for row in select(connection, sql, *values)]


def check_version(connection: apsw.Connection, steps: Sequence[Step], path: Path) -> int:
    """The schema's version; LogTooNew when a newer release wrote the file."""
    version = int(connection.pragma("user_version"))
    if version > len(steps):
        raise LogTooNew(
            f"{path} has schema version {version}; this release knows up to {len(steps)}.",
            hint="Run the release that wrote it, or a newer one.",
        )
    return version


def migrate(connection: apsw.Connection, steps: Sequence[Step], path: Path) -> int:
    """Bring the schema up to date: step n takes `user_version` from n-1 to n, in a transaction of its own.

    The version that was found; 0 for a new file.
    """
    version = check_version(connection, steps, path)
    for number in range(version, len(steps)):
        with connection:
            steps[number](connection)
            connection.pragma("user_version", number + 1)
    return version


def is_damage(error: Exception) -> bool:
    """Whether the error says that the file is damaged, rather than an I/O error of the disk."""
    if isinstance(error, apsw.IOError):
        return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ
    return isinstance(error, DAMAGE)


def classify(error: Exception, folder: Path) -> LogFull | LogUnavailable:
    """The error for callers that wait for the disk: full (507) or another failure (503)."""
    full = isinstance(error, apsw.FullError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if not full:
        try:
            full = shutil.disk_usage(folder).free < LOW_SPACE_BYTES
        except OSError:
            full = False
    if full:
        return LogFull(
            f"The disk that holds {folder} is full; nothing was taken.",
            hint="Free space there; the log recovers by itself. Send the event again.",
        )
    if isinstance(error, PermissionError | apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        denied = find_denied([folder])
        if denied is not None:
            return LogUnavailable(f"This user may not use {denied}.", hint=permission_hint(denied))
    return LogUnavailable(
        f"The disk that holds {folder} answered with an error ({type(error).__name__}: {error}).",
        hint="Check the machine's disk; send the event again.",
    )


# --- damaged files, kept in `damaged/` beside the file that replaces them ------------------------------


def files_of(path: Path) -> list[Path]:
    """A database file and its companions: WAL, shared memory, and the rollback journal of its creation."""
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")]


def remove_database(path: Path) -> None:
    """Remove a database file and its companions."""
    for file in files_of(path):
        file.unlink(missing_ok=True)


def damaged_file_names(folder: Path) -> list[str]:
    """The names of the files that were set aside."""
    return sorted(file.name for file in (folder / "damaged").glob("*"))


def trim_damaged(folder: Path, room_bytes: int) -> None:
    """Remove the oldest files that were set aside until the rest fits: evidence is not worth an event."""
    files = sorted((file.stat().st_ctime, file) for file in (folder / "damaged").glob("*"))
    excess = sum(file.stat().st_size for _, file in files) - room_bytes
    for _, file in files:
        if excess <= 0:
            return
        excess -= file.stat().st_size
        logger.warning("damaged/%s was removed: with it the log would exceed its limit of bytes.", file.name)
        file.unlink()


def move_to_damaged(path: Path, error: Exception) -> None:
    """Move a damaged database and its WAL to `damaged/`, so that a new one can take its place."""
    logger.error("%s is damaged (%s). It was moved to damaged/.", path.name, error)
    for file in files_of(path)[:2]:
        if file.exists():
            file.rename(_place_for(file))
    for file in files_of(path)[2:]:
        file.unlink(missing_ok=True)  # no companion may meet a database that it does not belong to


def copy_to_damaged(path: Path) -> None:
    """Copy a damaged database and its WAL to `damaged/`."""
    for file in files_of(path)[:2]:
        if file.exists():
            shutil.copyfile(file, _place_for(file))


def _place_for(file: Path) -> Path:
    (file.parent / "damaged").mkdir(exist_ok=True)
    name = f"{file.name}.{time.strftime('%Y%m%dT%H%M%S')}"
    place, number = file.parent / "damaged" / name, 0
    while os.path.lexists(place):
        number += 1
        place = place.with_name(f"{name}.{number}")
    return place
