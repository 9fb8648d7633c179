"""ClickHouse's SQL: dialect, types, and the statements that fill a table beside the target of a load."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from headwater.destinations.column_types import Kind
from headwater.destinations.sql import statements
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.sql_destination import StagedColumn
from headwater.destinations.sql.statements import ColumnValue, Rows
from headwater.destinations.staged_files import Form, form_of
from headwater.destinations.table import Table

ROW_WITHOUT_KEY = "_headwater_keyless"
"""Hidden last column of the sorting keys that Headwater creates: it differs in rows that lack their key, so
that they replace no row."""

VIRTUAL_COLUMNS = frozenset(
    {
        "_block_number",
        "_block_offset",
        "_database",
        "_disk_name",
        "_part",
        "_part_data_version",
        "_part_granule_offset",
        "_part_index",
        "_part_offset",
        "_part_starting_offset",
        "_part_uuid",
        "_partition_id",
        "_partition_value",
        "_row_exists",
        "_sample_factor",
        "_table",
    }
)
"""Columns that every table of the MergeTree family has."""

TIME = "DateTime64(6, 'UTC')"
_NATIVE_FORMS = {
    "String": Form.TEXT,
    "Float64": Form.FLOAT,
    "Int64": Form.INTEGER,
    "UInt8": Form.BOOLEAN,
    TIME: Form.TIME,
}
STAGING_TYPES = {form: type for type, form in _NATIVE_FORMS.items()}
"""Types of the columns of the raw table, into which Parquet is read."""
_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")


class ClickHouseDialect(Dialect):
    """Names in backticks; a backslash escapes in names and literals."""

    def quoted(self, name: str) -> str:
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def has_key(self, text: str, name: str) -> str:
        return f"JSONHas(assumeNotNull({text}), {self.literal(name)})"

    def last_value(self, column: str, row: str) -> str:
        return f"argMaxOrNullIf({column}, {row}, {column} IS NOT NULL)"


DIALECT = ClickHouseDialect()


def bare(type: str) -> str:
    """The type without `Nullable` and `LowCardinality`."""
    while wrapped := _WRAPPED.fullmatch(type):
        type = wrapped[1]
    return type


def kind_of(type: str) -> Kind:
    """The kind that values for a column of the type are staged as."""
    base = bare(type)
    if base.startswith("JSON"):
        return Kind.JSON
    if base in ("UInt8", "Bool"):
        return Kind.BOOL
    if base.startswith(("Int", "UInt")):
        return Kind.INT64
    if base.startswith(("Float", "Decimal", "BFloat")):
        return Kind.FLOAT64
    return Kind.TIMESTAMP if base.startswith("DateTime") else Kind.STRING


def column_value(column: StagedColumn) -> ColumnValue:
    """How a staged value becomes a value of its column."""
    value, form, target = DIALECT.staged(column.name), form_of(column.type), bare(column.target.sql_type)
    if column.cast_type:
        inner = _cast(value, form, bare(column.cast_type))
        fitted = f"accurateCastOrNull({inner}, {DIALECT.literal(target)})"
    elif _NATIVE_FORMS.get(target) is form:
        return ColumnValue(value)
    else:
        fitted = _cast(value, form, target)
        if form is Form.TIME and target.startswith("Date"):  # times outside the range become others
            back = f"toDateTime64({fitted}, 6, 'UTC')"
            fitted = f"if(isNull({fitted}) OR {back} != {value}, NULL, {fitted})"
    original = f"toJSONString(assumeNotNull({value}))"
    return ColumnValue(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL", original)


def _cast(value: str, form: Form, target: str) -> str:
    is_time = target.startswith("DateTime")
    if is_time and form is Form.TEXT:
        value = f"parseDateTime64BestEffortOrNull({value}, 6, 'UTC')"
    elif is_time is not (form is Form.TIME):
        # ClickHouse casts any number to a time, and a time to a number; as texts they do not fit
        value = f"toString({value})"
    if target.startswith("Decimal") and form is Form.FLOAT:  # by way of text, which shows digits that are cut
        fitted = f"accurateCastOrNull(toString({value}), {DIALECT.literal(target)})"
        return f"if(toString({fitted}) = toString({value}), {fitted}, NULL)"
    return f"accurateCastOrNull({value}, {DIALECT.literal(target)})"


# --- statements of a load


class LoadTables(NamedTuple):
    """The tables beside a load's target."""

    raw: str
    ready: str


def load_tables(load_id: str) -> LoadTables:
    """The names of a load's tables; a retry computes the same names."""
    digest = blake2b(load_id.encode(), digest_size=12).hexdigest()
    return LoadTables(f"_headwater_raw_{digest}", f"_headwater_ready_{digest}")


def append(ready: str, rows: Rows, load_id: str, *, has_row_without_key: bool) -> str:
    """Inserts the rows that lack a part of the key, or all rows if there is no key."""
    names = DIALECT.listed(rows.values)
    hidden, unlike = "", ""
    if has_row_without_key:
        hidden = f", {DIALECT.quoted(ROW_WITHOUT_KEY)}"
        unlike = f", concat({DIALECT.literal(load_id + ':')}, toString({DIALECT.row}))"
    rest = f" WHERE NOT ({statements.key_present_sql(rows.key, DIALECT)})" if rows.key else ""
    return (
        f"INSERT INTO {ready} ({names}{hidden}) "
        f"SELECT {names}{unlike} FROM ({rows.query(DIALECT)}) AS base{rest}"
    )


def merge_with_stored(ready: str, stored: str, table: Table, rows: Rows, *, any_repeated: bool) -> str:
    """Inserts one row for each key: the last value of each column, or else that of the table `stored`."""
    fresh = statements.latest_per_key(rows, DIALECT, any_repeated=any_repeated)
    key, columns = DIALECT.listed(rows.key), DIALECT.listed(table.columns)
    present = statements.key_present_sql(rows.key, DIALECT)
    values = ", ".join(_merged_value(name, rows) for name in table.columns)
    same = " AND ".join(f"fresh.{each} = stored.{each}" for each in map(DIALECT.quoted, rows.key))
    return (
        f"INSERT INTO {ready} ({columns}) SELECT {values} FROM ({fresh}) AS fresh LEFT JOIN ("
        f"SELECT {columns} FROM {stored} "
        f"WHERE ({key}) IN (SELECT {key} FROM ({rows.query(DIALECT)}) AS base WHERE {present})"
        f") AS stored ON {same}"
    )


def _merged_value(name: str, rows: Rows) -> str:
    quoted = DIALECT.quoted(name)
    if name in rows.key:
        return f"fresh.{quoted}"
    return f"coalesce(fresh.{quoted}, stored.{quoted})" if name in rows.values else f"stored.{quoted}"
