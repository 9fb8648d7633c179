"""ClickHouse, by its HTTP interface, or its engine inside this process (`chdb:///folder`).

ClickHouse has no transactions. A load is prepared in a table beside the target; the ledger records that the
move begins; the table's partitions are moved into the target; the ledger records that the move is complete.
After a crash in between, moved partitions are no longer in the prepared table, so the next attempt completes
the move and repeats nothing (G5). Only a crash of the *server* during the move can leave a partition in both
tables, and its rows are then stored twice in a table without a key.

A key is a ReplacingMergeTree: older rows disappear when parts are merged, and `SELECT … FINAL` returns the
newest rows at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from headwater.destinations.base import Capabilities, Load, Loaded, Merge
from headwater.destinations.clickhouse.connection import ClickHouseServer, Properties
from headwater.destinations.clickhouse.sql import (
    DIALECT,
    ROW_WITHOUT_KEY,
    STAGING_TYPES,
    TIME,
    VIRTUAL_COLUMNS,
    append,
    bare,
    column_value,
    kind_of,
    load_tables,
    merge_with_stored,
)
from headwater.destinations.column_types import Kind
from headwater.destinations.sql import statements
from headwater.destinations.sql.ledger import LEDGER, Ledger
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import Rows
from headwater.destinations.staged_files import StagedFiles, form_of
from headwater.destinations.table import ROW, UNMAPPED, Column, Patch, Table
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError
from headwater.formats.json_decoder import json_decoder
from headwater.system.crash_points import crash_point

_MOVING, _DONE = 0, 1
_WIDER = {(Kind.INT64, Kind.FLOAT64), (Kind.INT64, Kind.STRING), (Kind.FLOAT64, Kind.STRING)}
"""The kinds between which MODIFY COLUMN changes no value."""


class ClickHouseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `clickhouse`."""

    url: Annotated[
        str,
        msgspec.Meta(
            description="The server, such as `https://user:${env.CH_PASSWORD}@host:8443`; "
            "`chdb:///folder` runs the engine in this process."
        ),
    ]
    database: Annotated[
        str, msgspec.Meta(description="Database of the tables; created if it does not exist.")
    ] = "default"
    lock_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="A table that is locked for longer is loaded later.")
    ] = 30
    statement_timeout_seconds: Annotated[
        int,
        msgspec.Meta(
            ge=0, description="A statement that takes longer ends, and its load is retried; 0: no limit."
        ),
    ] = 1_800


class MoveInterrupted(WarehouseError):
    """A load whose rows may be stored in part: nothing but the rest of its move may store them."""

    retryable = True


class _Marker(msgspec.Struct):
    """The comment of a table that Headwater created."""

    headwater_key: tuple[str, ...]


class ClickHouseDestination(SqlDestination):
    """Rows in a ClickHouse database."""

    Settings: ClassVar[type[msgspec.Struct]] = ClickHouseSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "String",
            Kind.FLOAT64: "Float64",
            Kind.INT64: "Int64",
            Kind.BOOL: "UInt8",
            Kind.TIMESTAMP: TIME,
            Kind.JSON: "String",
        },
        max_identifier_length=127,
        max_columns=10_000,
        folds_case=False,
        supports_transactions=False,
        merge=Merge.EVENTUAL,
        any_letters=True,
        reserved_columns=VIRTUAL_COLUMNS,
    )
    dialect = DIALECT
    creates_in_transactions = False
    options: ClickHouseSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        relation, done = self.relation(LEDGER), f"state = {_DONE}"
        self.ledger = Ledger(relation, DIALECT, read_from=f"{relation} FINAL", condition=done)
        self._open: ClickHouseServer | None = None
        self._load_id = ""  # of the load under way: its tables are named by it

    def dataset(self, table: str) -> tuple[str, str]:
        url = urlsplit(self.options.url)
        host = f"{url.hostname or 'localhost'}:{url.port or 8123}"
        return f"clickhouse://{host}", f"{self.options.database}.{table}"

    def connect(self) -> None:
        if self._open is not None:
            return
        limits = {
            "lock_acquire_timeout": self.options.lock_timeout_seconds,
            "max_execution_time": self.options.statement_timeout_seconds,
        }
        server = ClickHouseServer(self.id, self.options.url, self.options.database, limits)
        # CREATE … IF NOT EXISTS needs a privilege even where the database exists
        if not server.execute(
            f"SELECT 1 FROM system.databases WHERE name = {DIALECT.literal(server.database)}"
        ):
            server.execute(f"CREATE DATABASE IF NOT EXISTS {DIALECT.quoted(server.database)}")
        columns = ", ".join(self.ledger.column_definitions(self.capabilities.types))
        server.execute(
            f"CREATE TABLE IF NOT EXISTS {self.ledger.relation} ({columns}, "
            f"state UInt8, loaded_at {TIME} DEFAULT now64(6)) "
            "ENGINE = ReplacingMergeTree(state) ORDER BY load_id"
        )
        columns = ", ".join(self.registry.column_definitions(self.capabilities.types))
        server.execute(
            f"CREATE TABLE IF NOT EXISTS {self.registry.relation} ({columns}) "
            "ENGINE = MergeTree ORDER BY table_name"
        )
        self._open = server

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _server(self) -> ClickHouseServer:
        if self._open is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        return self._open

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self._server.execute(statement)

    def relation(self, name: str) -> str:
        return f"{DIALECT.quoted(self.options.database)}.{DIALECT.quoted(name)}"

    def table(self, name: str) -> Table | None:
        properties = self._server.properties(name)
        if properties is None:
            return None
        if properties.engine.endswith(("View", "Dictionary")):
            raise self.view_error(name)
        columns = {
            column: Column(column, Kind.JSON if column == UNMAPPED else kind_of(type), type)
            for column, type in self._server.columns(name)
            if column != ROW_WITHOUT_KEY
        }
        ours = _marker(properties)
        if ours:
            return Table(name, columns, ours.headwater_key)
        # only a sorting key of plain columns can be a key
        parts = tuple(part.strip().strip("`") for part in properties.sorting_key.split(","))
        return Table(name, columns, (), parts if properties.final and {*parts} <= {*columns} else ())

    def alter(self, table: str, patch: Patch) -> None:
        columns = self.column_definitions(patch.add)
        if patch.create:
            self.execute(self._creation(table, columns, patch.set_key))
            return
        if columns:
            added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in columns)
            self.execute(f"ALTER TABLE {self.relation(table)} {added}")
        if patch.drop_key or patch.set_key:
            properties = self._server.properties(table)
            # a table that Headwater did not create keeps its order: rows are appended to it
            if properties is not None and _marker(properties):
                self._rebuild(table, properties, patch.set_key)

    def check_ours(self, name: str) -> None:
        properties = self._server.properties(name)
        if (
            properties is None or _marker(properties) is None
        ):  # CREATE marks a table, so no crash parts the two
            super().check_ours(name)

    def column_type(self, column: Column) -> str:
        # Nullable: otherwise a field that an event does not have would read as 0 or ''
        return super().column_type(column) if column.sql_type else f"Nullable({self.sql_type(column.kind)})"

    # --- wider columns

    def has_own_type(self, column: Column) -> bool:
        return bare(column.sql_type) == self.capabilities.types[column.kind]

    def widen_statements(self, table: Table, column: str, kind: Kind) -> list[str]:
        own = table.columns[column].kind
        if (own, kind) not in _WIDER or column in table.key:
            return []  # a truth would become the text 1, and a time another text
        type = f"Nullable({self.sql_type(kind)})"
        return [f"ALTER TABLE {self.relation(table.name)} MODIFY COLUMN {DIALECT.quoted(column)} {type}"]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield  # there are none: each statement is complete, or has no effect

    # --- the ledger

    def ledger_entry(self, id: str) -> Loaded | None:
        rows = self.execute(self.ledger.entry_query(id, "state"))
        if not rows:
            return None
        state, *entry = rows[0]
        loaded = self.ledger.loaded(entry)
        if state == _MOVING:  # a process died while it moved the rows
            self._complete(str(entry[1]), loaded)
        return loaded

    now = "now64(6)"
    folded_columns: ClassVar[Mapping[str, str]] = {"state": str(_DONE)}

    def days_ago(self, days: int) -> str:
        return f"{self.now} - INTERVAL {days} DAY"

    def execute_together(self, work: Sequence[str]) -> None:
        self.execute_all(work)  # a crash leaves more entries than are needed, and all positions

    def loaded_between(self, low: str, high: str) -> set[str]:
        rows = self.execute(self.ledger.between_query(low, high, "state"))
        for id, state in rows:
            if state == _MOVING:  # no other process may know of this load
                self.ledger_entry(str(id))
        return {str(row[0]) for row in rows}

    # --- loads

    def load(self, load: Load) -> Loaded:
        self._load_id = load.id
        return super().load(load)

    @contextmanager
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> Iterator[StagingRelation]:
        tables = load_tables(self._load_id)
        types = {name: f"Nullable({STAGING_TYPES[form_of(type)]})" for name, type in staged.types.items()}
        types[ROW] = "Int64"
        definitions = ", ".join(f"{DIALECT.quoted(name)} {type}" for name, type in types.items())
        raw = self.relation(tables.raw)
        self._server.drop(*tables)
        try:
            self.execute(f"CREATE TABLE {raw} ({definitions}) ENGINE = MergeTree ORDER BY {DIALECT.row}")
            for file in staged.files:
                with open(file, "rb") as parquet:
                    self._server.insert_parquet(tables.raw, list(staged.types), parquet)
            yield self.with_staged_names(raw, columns, column_value)
        finally:
            self._server.drop(tables.raw)

    def store_statements(self, table: Table, rows: Rows) -> list[str]:
        """The statements that fill the ready table, which has the structure of the target."""
        properties = self._server.properties(table.name)
        if properties is None:
            raise LoadRefused(
                f"the table {table.name!r} no longer exists.", hint="Run again: it is created again."
            )
        ready, target = self.relation(load_tables(self._load_id).ready), self.relation(table.name)
        engine = "" if properties.moves else " ENGINE = MergeTree ORDER BY tuple()"
        work = [
            f"DROP TABLE IF EXISTS {ready} SYNC",
            f"CREATE TABLE {ready} AS {target}{engine}",
            append(ready, rows, self._load_id, has_row_without_key=bool(table.primary_key)),
        ]
        if rows.key:
            any_repeated = bool(self.execute(statements.repeated_key_query(rows, DIALECT)))
            stored = f"{target} {properties.final}"
            work.append(merge_with_stored(ready, stored, table, rows, any_repeated=any_repeated))
        return work

    def commit_load(self, table: str, loaded: Loaded, work: Sequence[str]) -> bool:
        if not work:
            self._enter(table, loaded, _DONE)
            return True
        try:
            self.execute_all(work)
            self._enter(table, loaded, _MOVING)
        except BaseException:
            self._server.drop(load_tables(loaded.id).ready)
            raise
        crash_point("load.before_commit")
        self._complete(table, loaded)
        return True

    def try_and_roll_back(self, work: Sequence[str]) -> None:
        try:
            self.execute_all(work)
        finally:
            self._server.drop(load_tables(self._load_id).ready)

    def _complete(self, table: str, loaded: Loaded) -> None:
        """Move the prepared rows into the target; those that are no longer prepared have been moved.

        MoveInterrupted where the server refuses that: in other loads the moved rows would be stored again.
        """
        try:
            self._move(table, loaded)
        except LoadRefused as refusal:
            raise MoveInterrupted(
                f"the load {loaded.id} is being moved into {table!r}: {refusal.text}",
                hint=f"The move is tried again. If this stays, find out which rows are stored; then delete "
                f"its row in {LEDGER}, or set `state` to {_DONE}.",
            ) from refusal

    def _move(self, table: str, loaded: Loaded) -> None:
        raw, ready = load_tables(loaded.id)
        source, target = self._server.properties(ready), self._server.properties(table)
        if source is None or target is None:
            gone = ready if target else table
            raise LoadRefused(f"{gone} no longer exists.")
        if target.moves:
            self._server.move(ready, table)
        else:
            self._server.copy(ready, table, loaded.id)
        crash_point("load.after_commit")
        self._enter(table, loaded, _DONE)
        self._server.drop(raw, ready)

    def _rebuild(self, name: str, properties: Properties, key: Sequence[str]) -> None:
        """Copy a table into one with another key: ClickHouse cannot alter a sorting key."""
        new = f"_headwater_new_{blake2b(name.encode(), digest_size=12).hexdigest()}"
        columns = [(column, type) for column, type in self._server.columns(name) if column != ROW_WITHOUT_KEY]
        names = DIALECT.listed(column for column, _ in columns)
        self._server.drop(new)
        self.execute(
            self._creation(new, [f"{DIALECT.quoted(column)} {type}" for column, type in columns], key)
        )
        hidden = f", {DIALECT.quoted(ROW_WITHOUT_KEY)}" if key else ""
        unlike = (
            f", if({statements.key_present_sql(key, DIALECT)}, '', toString(generateUUIDv4()))" if key else ""
        )
        self.execute(
            f"INSERT INTO {self.relation(new)} ({names}{hidden}) SELECT {names}{unlike} "
            f"FROM {self.relation(name)} {properties.final}"
        )
        self.execute(f"EXCHANGE TABLES {self.relation(new)} AND {self.relation(name)}")
        self._server.drop(new)

    def _creation(self, name: str, columns: Sequence[str], key: Sequence[str]) -> str:
        hidden = [f"{DIALECT.quoted(ROW_WITHOUT_KEY)} String DEFAULT ''"] if key else []
        order = DIALECT.listed([*key, ROW_WITHOUT_KEY])
        engine = (
            f"ReplacingMergeTree ORDER BY ({order}) SETTINGS allow_nullable_key = 1"
            if key
            else "MergeTree ORDER BY tuple()"
        )
        marker = DIALECT.literal(msgspec.json.encode(_Marker(tuple(key))).decode())
        return (
            f"CREATE TABLE {self.relation(name)} ({', '.join([*columns, *hidden])}) "
            f"ENGINE = {engine} COMMENT {marker}"
        )

    def _enter(self, table: str, loaded: Loaded, state: int) -> None:
        self.execute(self.ledger.insert(table, loaded, state=str(state)))


_MARKER = json_decoder(_Marker)


def _marker(properties: Properties) -> _Marker | None:
    try:
        return _MARKER.decode(properties.comment)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
