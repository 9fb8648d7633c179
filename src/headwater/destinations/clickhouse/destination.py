"""ClickHouse, by its HTTP interface, or its engine inside this process (`chdb:///folder`).

There are no transactions. A load is made ready in a table beside the target, which is then moved into it
whole; the ledger says before and after that it is being moved. After a crash in between, what was moved is no
longer in the table beside: so the move is ended and never repeated (G5). Only if the *server* dies in the
middle of moving can rows be left in both, and then come twice into a table without a key.

A key is a ReplacingMergeTree: an older row disappears when parts are merged, and `SELECT … FINAL` shows the
newest at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from headwater.crash_points import crash_point
from headwater.destinations import ledger
from headwater.destinations.base import Capabilities, Destination, Load, Loaded, Merge, RefusedRow, Total
from headwater.destinations.clickhouse.connection import ClickHouseServer, Properties
from headwater.destinations.clickhouse.load import KEYLESS, Ready, beside, whole
from headwater.destinations.clickhouse.types import TIME, kind_of, listed, literal, quoted
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused, Selection, fitting, set_aside
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import UNMAPPED, Column, Table, check_names, check_sql_type, diff
from headwater.errors import DestinationUnavailable, LoadRefused

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
    database: Annotated[str, msgspec.Meta(description="Database of the tables; made if it is not there.")] = (
        "default"
    )


class _Marker(msgspec.Struct):
    """What the comment of a table of ours says."""

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
        self._open: ClickHouseServer | None = None

    def dataset(self, table: str) -> tuple[str, str]:
        url = urlsplit(self.options.url)
        host = f"{url.hostname or 'localhost'}:{url.port or 8123}"
        return f"clickhouse://{host}", f"{self.options.database}.{table}"

    def connect(self) -> None:
        if self._open is not None:
            return
        server = ClickHouseServer(self.id, self.options.url, self.options.database)
        # asked for first: making one needs a right, even where it is there
        if not server.query(f"SELECT 1 FROM system.databases WHERE name = {literal(server.database)}"):
            server.command(f"CREATE DATABASE IF NOT EXISTS {quoted(server.database)}")
        server.command(
            f"CREATE TABLE IF NOT EXISTS {server.relation(ledger.LEDGER)} (load_id String, "
            "table_name String, row_count Int64, unmapped_count Int64, refused_count Int64, "
            f"refused_rows String, state UInt8, loaded_at {TIME} DEFAULT now64(6)) "
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
            if column != KEYLESS
        }
        ours = _marker(properties)
        if ours:
            return Table(name, columns, ours.headwater_key)
        # of the expressions that may sort a table only plain columns can be a key
        parts = tuple(part.strip().strip("`") for part in properties.sorting_key.split(","))
        return Table(name, columns, (), parts if properties.final and {*parts} <= {*columns} else ())

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        name, properties = self._server.relation(wanted.name), self._server.properties(wanted.name)
        patch = diff(self.table(wanted.name), wanted)
        columns = [f"{quoted(column.name)} {self._type(column)}" for column in patch.add]
        with fitting(self.id, wanted.name):
            if patch.create:
                self._server.command(self._creation(wanted.name, columns, patch.set_key))
            elif patch.add:
                added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in columns)
                self._server.command(f"ALTER TABLE {name} {added}")
            # the order of a table that somebody else made stays his: rows are appended to it
            if properties is not None and (patch.drop_key or patch.set_key) and _marker(properties):
                self._rebuild(wanted.name, properties, patch.set_key)
        result = self.table(wanted.name)
        assert result is not None, "the table was just made"
        return result

    def load(self, load: Load) -> Loaded:
        if entry := self._entry(load.id):
            state, table, loaded = entry
            if state == _MOVING:
                self._end(table, beside(load.id).ready, loaded)
                self._server.drop(*beside(load.id))
            return loaded
        staged, actual = Staged(load.files), self.table(load.table.name)
        missing = [name for name in staged.columns if actual is None or name not in actual.columns]
        if actual is None or missing:
            what = f"has no column {missing[0]!r}" if actual is not None else "is not there"
            raise LoadRefused(
                f"the table {load.table.name!r} {what}.", hint="Run again: it is made to fit before a load."
            )
        ready = Ready(self._server, load, staged, actual)
        try:
            ready.stage()
            if ready.count_misfits(Selection()) and UNMAPPED not in actual.columns:
                unmapped_too = {**actual.columns, UNMAPPED: Column(UNMAPPED, Kind.JSON)}
                actual = self.patch(Table(actual.name, unmapped_too, actual.primary_key))
                ready = Ready(self._server, load, staged, actual)
            loaded = self._fill(ready, load.id, staged)
            self._enter(actual.name, loaded, _MOVING)
        except BaseException:
            ready.drop()
            raise
        crash_point("load.before_commit")
        self._end(actual.name, ready.name, loaded)
        ready.drop()
        return loaded

    def loaded(self, ids: Sequence[str]) -> set[str]:
        condition = f"load_id IN ({', '.join(map(literal, ids))})" if ids else "false"
        rows = self._server.query(
            f"SELECT load_id FROM {self._server.relation(ledger.LEDGER)} FINAL "
            f"WHERE {condition} AND state = {_DONE}"
        )
        return {str(row[0]) for row in rows}

    def loaded_between(self, low: str, high: str) -> set[str]:
        rows = self._server.query(
            f"SELECT load_id, state FROM {self._server.relation(ledger.LEDGER)} FINAL "
            f"WHERE load_id >= {literal(low)} AND load_id < {literal(high)}"
        )
        for id, state in rows:
            if state == _MOVING:  # nobody else may know of it any more
                self.load(Load(id=str(id), table=Table("", {}), files=[], rows=0))
        return {str(row[0]) for row in rows}

    def totals(self) -> dict[str, Total]:
        return ledger.to_totals(
            self._server.query(
                "SELECT table_name, count(), sum(row_count), sum(unmapped_count), sum(refused_count) "
                f"FROM {self._server.relation(ledger.LEDGER)} FINAL WHERE state = {_DONE} GROUP BY table_name"
            )
        )

    @property
    def _server(self) -> ClickHouseServer:
        if self._open is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        return self._open

    def _fill(self, ready: Ready, id: str, staged: Staged) -> Loaded:
        refused: tuple[RefusedRow, ...] = ()
        selection = Selection()
        try:
            ready.fill(selection)
        except RowsRefused:
            refused = set_aside(staged.row_ids(), ready.failure, self.max_refused)
            selection = Selection(without=tuple(row.row for row in refused))
            ready.fill(selection)
        unmapped = ready.count_misfits(selection)
        return Loaded(id=id, rows=staged.rows - len(refused), unmapped=unmapped, refused=refused)

    def _end(self, table: str, ready: str, loaded: Loaded) -> None:
        """What is ready goes to the target; what is ready no longer has gone there."""
        there, target = self._server.properties(ready), self._server.properties(table)
        if there is None or target is None:
            raise LoadRefused(
                f"the load {loaded.id} was on its way into {table!r}; {ready if target else table} is gone.",
                hint=f"See what of it is stored; then delete its row of {ledger.LEDGER}, or set state 1.",
            )
        if target.moves:
            self._server.move(ready, table)
        else:
            self._server.copy(ready, table, loaded.id)
        crash_point("load.after_commit")
        self._enter(table, loaded, _DONE)
        self._server.drop(ready)

    def _rebuild(self, name: str, properties: Properties, key: Sequence[str]) -> None:
        """Give a table of ours another key. What sorts a table cannot be altered, so it is written anew."""
        new = f"_headwater_new_{blake2b(name.encode(), digest_size=12).hexdigest()}"
        columns = [(column, type) for column, type in self._server.columns(name) if column != KEYLESS]
        names = listed(column for column, _ in columns)
        self._server.drop(new)
        self._server.command(
            self._creation(new, [f"{quoted(column)} {type}" for column, type in columns], key)
        )
        hidden = f", {quoted(KEYLESS)}" if key else ""
        unlike = f", if({whole(key)}, '', toString(generateUUIDv4()))" if key else ""
        self._server.command(
            f"INSERT INTO {self._server.relation(new)} ({names}{hidden}) SELECT {names}{unlike} "
            f"FROM {self._server.relation(name)} {properties.final}"
        )
        self._server.command(
            f"EXCHANGE TABLES {self._server.relation(new)} AND {self._server.relation(name)}"
        )
        self._server.drop(new)

    def _creation(self, name: str, columns: Sequence[str], key: Sequence[str]) -> str:
        hidden = [f"{quoted(KEYLESS)} String DEFAULT ''"] if key else []
        engine = (
            f"ReplacingMergeTree ORDER BY ({listed([*key, KEYLESS])}) SETTINGS allow_nullable_key = 1"
            if key
            else "MergeTree ORDER BY tuple()"
        )
        marker = literal(msgspec.json.encode(_Marker(tuple(key))).decode())
        return (
            f"CREATE TABLE {self._server.relation(name)} ({', '.join([*columns, *hidden])}) "
            f"ENGINE = {engine} COMMENT {marker}"
        )

    def _type(self, column: Column) -> str:
        if column.sql_type:
            return check_sql_type(column.sql_type)
        # made to take NULL: else a field that an event does not have would read as 0 or ''
        return f"Nullable({self.capabilities.types[column.kind]})"

    def _entry(self, id: str) -> tuple[object, str, Loaded] | None:
        rows = self._server.query(
            f"SELECT {', '.join(ledger.COLUMNS)}, state FROM {self._server.relation(ledger.LEDGER)} FINAL "
            f"WHERE load_id = {literal(id)}"
        )
        return (rows[0][-1], str(rows[0][1]), ledger.from_row(rows[0][:-1])) if rows else None

    def _enter(self, table: str, loaded: Loaded, state: int) -> None:
        refused = msgspec.json.encode(loaded.refused).decode()
        numbers = f"{loaded.rows}, {loaded.unmapped}, {len(loaded.refused)}"
        self._server.command(
            f"INSERT INTO {self._server.relation(ledger.LEDGER)} ({', '.join(ledger.COLUMNS)}, state) "
            f"VALUES ({literal(loaded.id)}, {literal(table)}, {numbers}, {literal(refused)}, {state})"
        )


# Made once: two threads that have msgspec prepare the same type at the same time crash the process.
_MARKER = msgspec.json.Decoder(_Marker)


def _marker(properties: Properties) -> _Marker | None:
    try:
        return _MARKER.decode(properties.comment)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
