"""Staged rows become rows of a table in an open format: an embedded DuckDB computes them and stores nothing.

The conversions are those of the DuckDB destination: a value that does not fit the type of its column goes to
`_unmapped_data`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from headwater.destinations.duckdb import DuckDBDialect, exact_cast
from headwater.destinations.refused_rows import RowSelection
from headwater.destinations.sql import statements
from headwater.destinations.sql.statements import ColumnValue, Rows
from headwater.destinations.staged_files import Form, StagedFiles, form_of
from headwater.destinations.table import ROW, UNMAPPED
from headwater.system.crash_points import crash_point

_NATURAL = {
    (Form.TEXT, "VARCHAR"),
    (Form.FLOAT, "DOUBLE"),
    (Form.INTEGER, "BIGINT"),
    (Form.BOOLEAN, "BOOLEAN"),
    (Form.TIME, "TIMESTAMPTZ"),
}


class TargetColumn(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    """DuckDB's name of its type; empty: a type that takes no value of an event."""
    source: str = ""
    """The staged column that fills it; empty: none."""
    cast_type: str = ""
    """DuckDB's name of the type that values are cast to before; empty: none."""
    derived: str = ""
    """SQL of its value, where it is a column for partitions; the staged column is not stored then."""


class Dialect(DuckDBDialect):
    """DuckDB's SQL; `_unmapped_data` is stored as text."""

    def parse_json(self, text: str) -> str:
        return text


class RowEngine:
    """Computes the rows of loads."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"temp_directory": tempfile.gettempdir()})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._read: pa.RecordBatchReader | None = None

    def close(self) -> None:
        self._end_read()
        self._connection.close()

    def rows(self, staged: StagedFiles, columns: Sequence[TargetColumn], key: Sequence[str]) -> LakeRows:
        """The rows of staged files; `key` is empty where rows are appended."""
        return LakeRows(self, staged, columns, key)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        self._end_read()
        return self._connection.execute(query).fetchall()

    def read(self, query: str) -> pa.RecordBatchReader:
        """The rows of a query as they are computed, until the next query."""
        self._end_read()
        self._read = pa.RecordBatchReader.from_stream(self._connection.sql(query))
        return self._read

    def _end_read(self) -> None:
        """A writer that has refused a row leaves the others unread, and the connection busy."""
        if self._read is not None:
            self._read.close()
            self._read = None


class LakeRows:
    """The staged rows of one load, in the columns of its table."""

    def __init__(
        self,
        engine: RowEngine,
        staged: StagedFiles,
        columns: Sequence[TargetColumn],
        key: Sequence[str],
    ) -> None:
        self._engine, self._columns, self._sql = engine, columns, Dialect()
        sources = {column.source for column in columns if column.source}
        has_key = bool(key) and {*key} <= {column.name for column in columns if column.source}
        self.key = tuple(key) if has_key else ()
        files = ", ".join(map(self._sql.literal, staged.files))
        self._source = f"read_parquet([{files}], hive_partitioning = false)"
        unmapped = next((column.source for column in columns if column.name == UNMAPPED), "")
        text = self._sql.staged(unmapped) if unmapped else "NULL"
        self._values = {
            column.name: self._unless_aside(column, staged.types[column.source], text)
            for column in columns
            if column.source and column.source in sources
        }
        self._may_not_fit: Mapping[str, ColumnValue] = {
            name: value for name, value in self._values.items() if value.not_fitting
        }

    def count_not_fitting(self, selection: RowSelection) -> int:
        """The number of values that do not fit their column."""
        if not self._may_not_fit:
            return 0
        condition = selection.condition(self._sql.staged(ROW))
        query = statements.count_not_fitting(self._source, condition, self._may_not_fit)
        return sum(int(count or 0) for count in self._engine.fetch(query)[0])

    def appended(self, selection: RowSelection, *, sort_by: Sequence[str] = ()) -> pa.RecordBatchReader:
        """All rows, in every column of the table."""
        query = self._select(self._all(selection).query(self._sql))
        if sort_by:
            query += f" ORDER BY {self._sql.listed(sort_by)}, {self._sql.row}"
        return self._reader(query)

    def latest(self, selection: RowSelection) -> pa.RecordBatchReader:
        """One row for each key with the last value of each column, and all rows without a key."""
        rows = self._all(selection)
        found = self._engine.fetch(statements.repeated_key_query(rows, self._sql))
        fresh = statements.latest_per_key(rows, self._sql, any_repeated=bool(found))
        present = statements.key_present_sql(rows.key, self._sql)
        names = self._sql.listed(rows.values)
        query = (
            f"SELECT {names} FROM ({fresh}) AS fresh UNION ALL "
            f"SELECT {names} FROM ({rows.query(self._sql)}) AS base WHERE NOT ({present})"
        )
        return self._reader(self._select(query))

    def _all(self, selection: RowSelection) -> Rows:
        values = {name: value.value for name, value in self._values.items()}
        if self._may_not_fit and UNMAPPED in {column.name for column in self._columns}:
            own = values.get(UNMAPPED, "NULL")
            values[UNMAPPED] = statements.with_unmapped_sql(own, own, self._may_not_fit, self._sql)
        for column in self._columns:
            if column.derived:
                values[column.name] = column.derived
        row = self._sql.staged(ROW)
        return Rows(self._source, row, values, selection.condition(row), self.key)

    def _select(self, query: str) -> str:
        """Every column of the table of a plain type; NULL where the load has none."""
        given = {*self._values, UNMAPPED if self._may_not_fit else ""}
        columns = []
        for column in self._columns:
            if column.type:
                name = self._sql.quoted(column.name)
                value = name if column.derived or column.name in given else "NULL"
                columns.append(f"CAST({value} AS {column.type}) AS {name}")
        return f"SELECT {', '.join(columns)} FROM ({query}) AS prepared"

    def _reader(self, query: str) -> pa.RecordBatchReader:
        found = self._engine.read(query)
        return pa.RecordBatchReader.from_batches(found.schema, _until_commit(found))

    def _unless_aside(self, column: TargetColumn, type: pa.DataType, unmapped: str) -> ColumnValue:
        value = self._value(column, type)
        if form_of(type) is not Form.TIME:
            return value
        return statements.unless_aside(value, column.source, unmapped, self._sql)

    def _value(self, column: TargetColumn, type: pa.DataType) -> ColumnValue:
        value, form = self._sql.staged(column.source), form_of(type)
        json = f"CAST(to_json({value}) AS VARCHAR)"
        if column.derived or not column.type:
            return ColumnValue(f"CAST(NULL AS {column.type or 'VARCHAR'})", f"{value} IS NOT NULL", json)
        if column.cast_type:
            fitted = f"TRY_CAST(TRY_CAST({value} AS {column.cast_type}) AS {column.type})"
        elif (form, column.type) in _NATURAL:
            return ColumnValue(value)
        elif form is Form.TIME and column.type == "TIMESTAMP":
            return ColumnValue(f"{value}::TIMESTAMP")
        else:
            fitted = exact_cast(value, form, column.type)
        return ColumnValue(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL", json)


def _until_commit(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches; a writer has all rows when they end, and commits then."""
    yield from batches
    crash_point("load.before_commit")
