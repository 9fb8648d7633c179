"""A load for ClickHouse prepared in tables beside its target: staged, cast and merged with stored rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from headwater.destinations.base import Load
from headwater.destinations.clickhouse.connection import ClickHouseServer
from headwater.destinations.clickhouse.types import DIALECT, column_value, staged_type
from headwater.destinations.refused_rows import RowSelection, RowsRefused
from headwater.destinations.sql import statements
from headwater.destinations.sql.statements import Rows
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import ROW, UNMAPPED, Table
from headwater.errors import LoadRefused

__all__ = ["ROW_WITHOUT_KEY", "LoadTables", "PreparedLoad", "load_tables"]

ROW_WITHOUT_KEY = "_headwater_keyless"
"""Hidden last column of the sorting keys that Headwater creates: it differs in rows that lack their key, so
that they replace no row."""


class LoadTables(NamedTuple):
    """The tables beside a load's target."""

    raw: str
    ready: str


def load_tables(load_id: str) -> LoadTables:
    """The names of a load's tables; a retry computes the same names."""
    digest = blake2b(load_id.encode(), digest_size=12).hexdigest()
    return LoadTables(f"_headwater_raw_{digest}", f"_headwater_ready_{digest}")


class PreparedLoad:
    """Fills a table of the target's structure with a load's rows; the target is not changed."""

    def __init__(self, server: ClickHouseServer, load: Load, staged: StagedFiles, table: Table) -> None:
        self._server, self._load, self._staged, self._table = server, load, staged, table
        self._raw, self.name = load_tables(load.id)
        self._values = {
            name: column_value(
                f"staged.{DIALECT.quoted(name)}",
                staged.types[name],
                load.table.columns.get(name, table.columns[name]).cast_type,
                table.columns[name].sql_type,
            )
            for name in staged.columns
        }
        self._may_not_fit = {name: value for name, value in self._values.items() if value.not_fitting}

    def stage(self) -> None:
        """Copy the staged files into the raw table."""
        self.drop()
        columns = ", ".join(
            f"{DIALECT.quoted(name)} {'Int64' if name == ROW else f'Nullable({staged_type(type)})'}"
            for name, type in self._staged.types.items()
        )
        raw = self._server.relation(self._raw)
        self._server.command(f"CREATE TABLE {raw} ({columns}) ENGINE = MergeTree ORDER BY {DIALECT.row}")
        for file in self._staged.files:
            with open(file, "rb") as parquet:
                self._server.insert_parquet(self._raw, list(self._staged.types), parquet)

    def drop(self) -> None:
        """Drop both tables."""
        self._server.drop(self._raw, self.name)

    def count_not_fitting(self, selection: RowSelection) -> int:
        """The number of values of the selected rows that do not fit their column."""
        if not self._may_not_fit:
            return 0
        source, condition = self._server.relation(self._raw), selection.condition(f"staged.{DIALECT.row}")
        query = statements.count_not_fitting(source, condition, self._may_not_fit)
        return sum(int(str(count)) for count in self._server.query(query)[0])

    def refusal(self, selection: RowSelection) -> str | None:
        """Why ClickHouse refuses the selected rows, or None if it takes them."""
        try:
            self.fill(selection)
        except RowsRefused as refusal:
            return refusal.text
        return None

    def fill(self, selection: RowSelection) -> None:
        """Replace the rows of the ready table by the selected ones."""
        properties = self._server.properties(self._table.name)
        if properties is None:
            raise LoadRefused(
                f"the table {self._table.name!r} no longer exists.", hint="Run again: it is created again."
            )
        like = "" if properties.moves else " ENGINE = MergeTree ORDER BY tuple()"
        target, ready = self._server.relation(self._table.name), self._server.relation(self.name)
        self._server.drop(self.name)
        self._server.command(f"CREATE TABLE {ready} AS {target}{like}")
        rows = self._rows(selection)
        hidden = [ROW_WITHOUT_KEY] if self._table.primary_key else []
        unlike = (
            f", concat({DIALECT.literal(self._load.id + ':')}, toString({DIALECT.row}))" if hidden else ""
        )
        rest = f" WHERE NOT ({statements.key_present_sql(rows.key, DIALECT)})" if rows.key else ""
        self._server.command(
            f"INSERT INTO {ready} ({DIALECT.listed([*rows.values, *hidden])}) "
            f"SELECT {DIALECT.listed(rows.values)}{unlike} FROM ({rows.query(DIALECT)}) AS base{rest}"
        )
        if rows.key:
            merged = self._merged(rows, properties.final)
            self._server.command(f"INSERT INTO {ready} ({DIALECT.listed(self._table.columns)}) {merged}")

    def _rows(self, selection: RowSelection) -> Rows:
        values = {name: found.value for name, found in self._values.items()}
        if self._may_not_fit and UNMAPPED in self._table.columns:
            own = values.get(UNMAPPED, "NULL")
            values[UNMAPPED] = statements.with_unmapped_sql(own, own, self._may_not_fit, DIALECT)
        key = self._table.key if {*self._table.key} <= {*values} else ()
        row = f"staged.{DIALECT.row}"
        return Rows(self._server.relation(self._raw), row, values, selection.condition(row), key)

    def _merged(self, rows: Rows, final: str) -> str:
        """One row for each key: the last value of each column, or else the stored value."""
        any_repeated = bool(self._server.query(statements.repeated_key_query(rows, DIALECT)))
        fresh = statements.latest_per_key(rows, DIALECT, any_repeated=any_repeated)
        key = DIALECT.listed(rows.key)
        present = statements.key_present_sql(rows.key, DIALECT)
        stored = (
            f"SELECT {DIALECT.listed(self._table.columns)} "
            f"FROM {self._server.relation(self._table.name)} {final} "
            f"WHERE ({key}) IN (SELECT {key} FROM ({rows.query(DIALECT)}) AS base WHERE {present})"
        )
        values = [self._merged_value(name, rows) for name in self._table.columns]
        same = " AND ".join(f"fresh.{each} = stored.{each}" for each in map(DIALECT.quoted, rows.key))
        return f"SELECT {', '.join(values)} FROM ({fresh}) AS fresh LEFT JOIN ({stored}) AS stored ON {same}"

    @staticmethod
    def _merged_value(name: str, rows: Rows) -> str:
        quoted = DIALECT.quoted(name)
        if name in rows.key:
            return f"fresh.{quoted}"
        return f"coalesce(fresh.{quoted}, stored.{quoted})" if name in rows.values else f"stored.{quoted}"
