"""The schema of the rejects store, and the two forms of a reject: as a stage adds it, and as it is stored."""

from __future__ import annotations

import secrets

import apsw
import msgspec

from headwater.log.rejects.totals import GATEWAY

ROW_BYTES = 200  # of a row beside its texts: numbers, index entries, the stage
SIZE = f"length(body) + length(CAST(reason AS BLOB)) + length(details) + {ROW_BYTES}"
COUNT = f"SELECT stage, count(*), sum({SIZE}) FROM rejects GROUP BY stage"  # noqa: S608
COLUMNS = "id, at, stage, position, received_at, reason, details, body, replay_requested, tries"


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


MIGRATIONS = (_create, _totals)
