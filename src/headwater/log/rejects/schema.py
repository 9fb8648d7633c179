"""The schema of the rejects store, and the two forms of a reject: as a stage adds it, and as it is stored."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from headwater.log.queue.sqlite import typed, typed_rows
from headwater.log.rejects.totals import GATEWAY

ROW_BYTES = 200  # of a row beside its texts: numbers, index entries, the stage
SIZE = f"length(body) + length(CAST(reason AS BLOB)) + length(details) + {ROW_BYTES}"
COUNT = f"SELECT stage, count(*), sum({SIZE}) FROM rejects GROUP BY stage"  # noqa: S608
COLUMNS = "id, at, stage, position, received_at, reason, details, body, replay_requested, tries, checksum"
_TYPES = (int, float, str, int, float, str, bytes, bytes, int, int, int)
_OPTIONAL = (3, 10)  # places of values that may be NULL: position and checksum
DAMAGED = "damaged on disk: the event does not match its checksum"


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
    is_damaged: bool = False


def checksum(stage: str, position: int | None, received_at: float, body: bytes) -> int:
    """The CRC-32 of an event and of what says where it came from."""
    return zlib.crc32(body, zlib.crc32(f"{stage}\0{position}\0{float(received_at)!r}".encode()))


def columns(version: int) -> str:
    """The columns of a file of this schema version; rejects of earlier releases have no checksum."""
    return COLUMNS if version >= len(MIGRATIONS) else COLUMNS.replace("checksum", "NULL")


def reject_of(row: Sequence[Any]) -> Reject:
    """The reject of a row; ValueError if the row has values that no reject has.

    Where the event does not match its checksum, the reason says so, and the reject is not replayed.
    """
    typed([0 if value is None and place in _OPTIONAL else value for place, value in enumerate(row)], *_TYPES)
    id, at, stage, position, received_at, reason, details, body, requested, tries, stored = row
    try:
        details = msgspec.json.decode(details, type=list[dict[str, str]])
    except msgspec.DecodeError as error:
        raise ValueError(f"the details of reject {id} cannot be read: {error}") from None
    is_damaged = stored is not None and stored != checksum(stage, position, received_at, body)
    if is_damaged:
        reason = DAMAGED
    return Reject(
        id, at, stage, position, received_at, reason, details, body, bool(requested), tries, is_damaged
    )


def file_id(connection: apsw.Connection) -> str:
    """The random name of a file of rejects; empty for one of an earlier release."""
    sql = "SELECT value FROM notes WHERE name = 'file'"
    return "".join(value for (value,) in typed_rows(connection, sql, (), str))


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


def _totals(connection: apsw.Connection) -> None:
    # Two logs may have used one store: the time distinguishes their events where positions are equal.
    connection.execute("DROP INDEX once")
    connection.execute(
        "CREATE UNIQUE INDEX once ON rejects(stage, position, received_at) WHERE position IS NOT NULL"
    )
    connection.execute("CREATE INDEX by_stage ON rejects(stage, id)")
    connection.execute(f"CREATE INDEX by_age ON rejects(at) WHERE stage <> '{GATEWAY}'")
    connection.execute(
        "CREATE TABLE totals(stage TEXT PRIMARY KEY, rejects INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT"
    )
    connection.execute(
        "CREATE TABLE dropped(stage TEXT NOT NULL, reason TEXT NOT NULL, events INTEGER NOT NULL,"
        " at REAL NOT NULL, PRIMARY KEY (stage, reason)) STRICT, WITHOUT ROWID"
    )
    # What became of rejects of an outlet, until its cursor counts it.
    connection.execute(
        "CREATE TABLE settlements(id INTEGER PRIMARY KEY AUTOINCREMENT, stage TEXT NOT NULL,"
        " fate TEXT NOT NULL, events INTEGER NOT NULL) STRICT"
    )
    connection.execute("CREATE TABLE notes(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
    connection.execute("INSERT INTO notes VALUES ('file', ?)", (secrets.token_hex(8),))
    connection.execute(f"INSERT INTO totals {COUNT}")


def _checksums(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE rejects ADD COLUMN checksum INTEGER")


MIGRATIONS = (_create, _totals, _checksums)
