"""A connection to ClickHouse, with the errors of the destination contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from headwater.destinations.clickhouse.sql import DIALECT
from headwater.destinations.sql.errors import contract_error, first_line
from headwater.errors import DestinationUnavailable

# Codes of errors that a row causes; those of a lock or a time limit; those that a table or statement causes.
_ROW_ERRORS = {6, 27, 38, 41, 53, 70, 72, 321, 349, 407, 469}
_LOCK_ERRORS = {159, 473}
_TABLE_ERRORS = {10, 15, 16, 36, 43, 44, 47, 57, 60, 62, 69, 80, 122, 386, 524}


class Properties(NamedTuple):
    """Engine, comment and sorting key of a table."""

    engine: str
    comment: str
    sorting_key: str

    @property
    def moves(self) -> bool:
        """Whether parts can be moved into it; a replicated table must be written by INSERT."""
        return self.engine.endswith("MergeTree") and not self.engine.startswith(("Replicated", "Shared"))

    @property
    def final(self) -> str:
        """The word with which a query reads the newest rows only."""
        return "FINAL" if "Replacing" in self.engine else ""


class ClickHouseServer:
    """A connection to one database of a server, or of the engine in this process."""

    def __init__(self, destination: str, url: str, database: str, settings: dict[str, int]) -> None:
        self._destination = destination
        self.database = database
        try:
            if url.startswith("chdb://"):
                folder = url.removeprefix("chdb://")
                self._client = clickhouse_connect.get_client(interface="chdb", path=folder, settings=settings)
            else:
                self._client = clickhouse_connect.get_client(
                    dsn=url, autogenerate_session_id=False, settings=settings
                )
        except (ClickHouseError, OSError) as error:
            raise DestinationUnavailable(
                f"destination {destination}: no connection to ClickHouse: {first_line(error)}.",
                hint="Check `url` and the server; the load is retried.",
            ) from error

    def close(self) -> None:
        self._client.close()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a query, or none of another statement; RowsRefused where a row is at fault."""
        with self._translating():
            if statement.startswith("SELECT"):
                return [tuple(row) for row in self._client.query(statement).result_rows]
            self._client.command(statement, settings={"join_use_nulls": 1})
            return []

    def insert_parquet(self, table: str, columns: list[str], parquet: BinaryIO) -> None:
        """Insert all rows of a Parquet file."""
        with self._translating():
            self._client.raw_insert(self.relation(table), columns, parquet, fmt="Parquet")

    def relation(self, name: str) -> str:
        """A table as it stands in a statement."""
        return f"{DIALECT.quoted(self.database)}.{DIALECT.quoted(name)}"

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Name and type of each column that can be written; empty if the table does not exist."""
        rows = self.execute(
            f"SELECT name, type FROM system.columns WHERE database = {DIALECT.literal(self.database)} "
            f"AND table = {DIALECT.literal(name)} "
            "AND default_kind NOT IN ('ALIAS', 'MATERIALIZED') ORDER BY position"
        )
        return [(str(column), str(type)) for column, type in rows]

    def properties(self, name: str) -> Properties | None:
        """The properties of a table; None if it does not exist."""
        rows = self.execute(
            "SELECT engine, comment, sorting_key FROM system.tables "
            f"WHERE database = {DIALECT.literal(self.database)} AND name = {DIALECT.literal(name)}"
        )
        return Properties(*map(str, rows[0])) if rows else None

    def drop(self, *names: str) -> None:
        """Drop tables that Headwater created."""
        for name in names:
            self.execute(f"DROP TABLE IF EXISTS {self.relation(name)} SYNC")

    def move(self, source: str, target: str) -> None:
        """Move all rows into a table of the same structure; each partition is moved atomically."""
        partitions = self.execute(
            "SELECT DISTINCT partition_id FROM system.parts WHERE active AND rows > 0 "
            f"AND database = {DIALECT.literal(self.database)} AND table = {DIALECT.literal(source)} "
            "ORDER BY partition_id"
        )
        for (partition,) in partitions:
            self.execute(
                f"ALTER TABLE {self.relation(source)} MOVE PARTITION ID {DIALECT.literal(str(partition))} "
                f"TO TABLE {self.relation(target)}"
            )

    def copy(self, source: str, target: str, token: str) -> None:
        """Copy all rows; the server ignores another copy with the same token while it keeps the token."""
        names = DIALECT.listed(column for column, _ in self.columns(source))
        self.execute(
            f"INSERT INTO {self.relation(target)} ({names}) SELECT {names} FROM {self.relation(source)} "
            f"SETTINGS insert_deduplicate = 1, max_insert_threads = 1, "
            f"insert_deduplication_token = {DIALECT.literal(token)}"
        )

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except (ClickHouseError, OSError) as error:
            code = getattr(error, "code", None)
            raise contract_error(
                self._destination,
                error,
                blames_row=code in _ROW_ERRORS,
                blames_table=code in _TABLE_ERRORS,
                blames_lock=code in _LOCK_ERRORS,
            ) from error
