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

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from headwater.crash_points import crash_point
from headwater.destinations.base import Capabilities, Destination, Load, Loaded, Merge, RefusedRow, Total
from headwater.destinations.clickhouse.connection import ClickHouseServer, Properties
from headwater.destinations.clickhouse.load import ROW_WITHOUT_KEY, PreparedLoad, load_tables
from headwater.destinations.clickhouse.types import DIALECT, TIME, kind_of
from headwater.destinations.column_types import Kind
from headwater.destinations.ledger import LEDGER, Ledger
from headwater.destinations.refused_rows import RowSelection, RowsRefused, as_table_error, find_refused_rows
from headwater.destinations.sql.statements import key_present_sql
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import UNMAPPED, Column, Table, check_names, check_sql_type, diff
from headwater.errors import DestinationUnavailable, LoadRefused
from headwater.json_decoder import json_decoder

__all__ = ["ClickHouseDestination", "ClickHouseSettings"]

_MOVING, _DONE = 0, 1


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


class _Marker(msgspec.Struct):
    """The comment of a table that Headwater created."""

    headwater_key: tuple[str, ...]


class ClickHouseDestination(Destination):
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
    )
    options: ClickHouseSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        relation = f"{DIALECT.quoted(self.options.database)}.{DIALECT.quoted(LEDGER)}"
        done = f"state = {_DONE}"
        self._ledger = Ledger(relation, DIALECT, read_from=f"{relation} FINAL", condition=done)
        self._open: ClickHouseServer | None = None

    def dataset(self, table: str) -> tuple[str, str]:
        url = urlsplit(self.options.url)
        host = f"{url.hostname or 'localhost'}:{url.port or 8123}"
        return f"clickhouse://{host}", f"{self.options.database}.{table}"

    def connect(self) -> None:
        if self._open is not None:
            return
        server = ClickHouseServer(self.id, self.options.url, self.options.database)
        # CREATE … IF NOT EXISTS needs a privilege even where the database exists
        if not server.query(
            f"SELECT 1 FROM system.databases WHERE name = {DIALECT.literal(server.database)}"
        ):
            server.command(f"CREATE DATABASE IF NOT EXISTS {DIALECT.quoted(server.database)}")
        columns = ", ".join(self._ledger.column_definitions(self.capabilities.types))
        server.command(
            f"CREATE TABLE IF NOT EXISTS {self._ledger.relation} ({columns}, "
            f"state UInt8, loaded_at {TIME} DEFAULT now64(6)) "
            "ENGINE = ReplacingMergeTree(state) ORDER BY load_id"
        )
        self._open = server

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def table(self, name: str) -> Table | None:
        properties = self._server.properties(name)
        if properties is None:
            return None
        columns = {
            column: Column(column, kind_of(column, type), type)
            for column, type in self._server.columns(name)
            if column != ROW_WITHOUT_KEY
        }
        ours = _marker(properties)
        if ours:
            return Table(name, columns, ours.headwater_key)
        # only a sorting key of plain columns can be a key
        parts = tuple(part.strip().strip("`") for part in properties.sorting_key.split(","))
        return Table(name, columns, (), parts if properties.final and {*parts} <= {*columns} else ())

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        name, properties = self._server.relation(wanted.name), self._server.properties(wanted.name)
        patch = diff(self.table(wanted.name), wanted)
        columns = [f"{DIALECT.quoted(column.name)} {self._type(column)}" for column in patch.add]
        with as_table_error(self.id, wanted.name):
            if patch.create:
                self._server.command(self._creation(wanted.name, columns, patch.set_key))
            elif patch.add:
                added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in columns)
                self._server.command(f"ALTER TABLE {name} {added}")
            # a table that Headwater did not create keeps its order: rows are appended to it
            if properties is not None and (patch.drop_key or patch.set_key) and _marker(properties):
                self._rebuild(wanted.name, properties, patch.set_key)
        result = self.table(wanted.name)
        assert result is not None, "the table was just created"
        return result

    def load(self, load: Load) -> Loaded:
        if entry := self._entry(load.id):
            state, table, loaded = entry
            if state == _MOVING:
                self._complete(table, load_tables(load.id).ready, loaded)
                self._server.drop(*load_tables(load.id))
            return loaded
        staged, actual = StagedFiles(load.files), self.table(load.table.name)
        missing = [name for name in staged.columns if actual is None or name not in actual.columns]
        if actual is None or missing:
            what = f"has no column {missing[0]!r}" if actual is not None else "does not exist"
            raise LoadRefused(
                f"the table {load.table.name!r} {what}.",
                hint="Run again: tables and columns are created before each load.",
            )
        prepared = PreparedLoad(self._server, load, staged, actual)
        try:
            prepared.stage()
            if prepared.count_not_fitting(RowSelection()) and UNMAPPED not in actual.columns:
                columns = {**actual.columns, UNMAPPED: Column(UNMAPPED, Kind.JSON)}
                actual = self.patch(Table(actual.name, columns, actual.primary_key))
                prepared = PreparedLoad(self._server, load, staged, actual)
            loaded = self._fill(prepared, load.id, staged)
            self._enter(actual.name, loaded, _MOVING)
        except BaseException:
            prepared.drop()
            raise
        crash_point("load.before_commit")
        self._complete(actual.name, prepared.name, loaded)
        prepared.drop()
        return loaded

    def loaded(self, ids: Sequence[str]) -> set[str]:
        return {str(row[0]) for row in self._server.query(self._ledger.ids_query(ids))}

    def loaded_between(self, low: str, high: str) -> set[str]:
        rows = self._server.query(self._ledger.between_query(low, high, "state"))
        for id, state in rows:
            if state == _MOVING:  # no other process may know of this load
                self.load(Load(id=str(id), table=Table("", {}), files=[], rows=0))
        return {str(row[0]) for row in rows}

    def totals(self) -> dict[str, Total]:
        return self._ledger.totals(self._server.query(self._ledger.totals_query()))

    @property
    def _server(self) -> ClickHouseServer:
        if self._open is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        return self._open

    def _fill(self, prepared: PreparedLoad, id: str, staged: StagedFiles) -> Loaded:
        refused: tuple[RefusedRow, ...] = ()
        selection = RowSelection()
        try:
            prepared.fill(selection)
        except RowsRefused:
            refused = find_refused_rows(staged.row_ids(), prepared.refusal, self.max_refused)
            selection = RowSelection(without=tuple(row.row for row in refused))
            prepared.fill(selection)
        unmapped = prepared.count_not_fitting(selection)
        return Loaded(id=id, rows=staged.rows - len(refused), unmapped=unmapped, refused=refused)

    def _complete(self, table: str, ready: str, loaded: Loaded) -> None:
        """Move the prepared rows into the target; those that are no longer prepared have been moved."""
        source, target = self._server.properties(ready), self._server.properties(table)
        if source is None or target is None:
            gone = ready if target else table
            raise LoadRefused(
                f"the load {loaded.id} was being moved into {table!r}; {gone} no longer exists.",
                hint=f"Look which of its rows are stored; then delete its row of {LEDGER}, or set state 1.",
            )
        if target.moves:
            self._server.move(ready, table)
        else:
            self._server.copy(ready, table, loaded.id)
        crash_point("load.after_commit")
        self._enter(table, loaded, _DONE)
        self._server.drop(ready)

    def _rebuild(self, name: str, properties: Properties, key: Sequence[str]) -> None:
        """Copy a table into one with another key: ClickHouse cannot alter a sorting key."""
        new = f"_headwater_new_{blake2b(name.encode(), digest_size=12).hexdigest()}"
        columns = [(column, type) for column, type in self._server.columns(name) if column != ROW_WITHOUT_KEY]
        names = DIALECT.listed(column for column, _ in columns)
        self._server.drop(new)
        self._server.command(
            self._creation(new, [f"{DIALECT.quoted(column)} {type}" for column, type in columns], key)
        )
        hidden = f", {DIALECT.quoted(ROW_WITHOUT_KEY)}" if key else ""
        unlike = f", if({key_present_sql(key, DIALECT)}, '', toString(generateUUIDv4()))" if key else ""
        self._server.command(
            f"INSERT INTO {self._server.relation(new)} ({names}{hidden}) SELECT {names}{unlike} "
            f"FROM {self._server.relation(name)} {properties.final}"
        )
        self._server.command(
            f"EXCHANGE TABLES {self._server.relation(new)} AND {self._server.relation(name)}"
        )
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
            f"CREATE TABLE {self._server.relation(name)} ({', '.join([*columns, *hidden])}) "
            f"ENGINE = {engine} COMMENT {marker}"
        )

    def _type(self, column: Column) -> str:
        if column.sql_type:
            return check_sql_type(column.sql_type)
        # Nullable: otherwise a field that an event does not have would read as 0 or ''
        return f"Nullable({self.capabilities.types[column.kind]})"

    def _entry(self, id: str) -> tuple[object, str, Loaded] | None:
        rows = self._server.query(self._ledger.entry_query(id, "state"))
        return (rows[0][0], str(rows[0][2]), Ledger.loaded(rows[0][1:])) if rows else None

    def _enter(self, table: str, loaded: Loaded, state: int) -> None:
        self._server.command(self._ledger.insert(table, loaded, state=str(state)))


_MARKER = json_decoder(_Marker)


def _marker(properties: Properties) -> _Marker | None:
    try:
        return _MARKER.decode(properties.comment)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
