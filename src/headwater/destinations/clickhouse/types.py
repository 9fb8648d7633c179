"""ClickHouse's dialect and types."""

from __future__ import annotations

import re

import pyarrow as pa

from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.table import UNMAPPED, check_sql_type

__all__ = ["DIALECT", "TIME", "bare", "column_value", "kind_of", "staged_type"]

TIME = "DateTime64(6, 'UTC')"
_NATIVE = {"String": pa.string(), "Float64": pa.float64(), "Int64": pa.int64(), "UInt8": pa.bool_()}
_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")


class ClickHouseDialect(Dialect):
    """Names in backticks; a backslash escapes in names and literals."""

    def quoted(self, name: str) -> str:
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def last_value(self, column: str, row: str) -> str:
        return f"argMaxOrNullIf({column}, {row}, {column} IS NOT NULL)"


DIALECT = ClickHouseDialect()


def bare(type: str) -> str:
    """The type without `Nullable` and `LowCardinality`."""
    while wrapped := _WRAPPED.fullmatch(type):
        type = wrapped[1]
    return type


def kind_of(name: str, type: str) -> Kind:
    """The kind that values for the column are staged as."""
    base = bare(type)
    if name == UNMAPPED or base.startswith("JSON"):
        return Kind.JSON
    if base in ("UInt8", "Bool"):
        return Kind.BOOL
    if base.startswith(("Int", "UInt")):
        return Kind.INT64
    if base.startswith(("Float", "Decimal", "BFloat")):
        return Kind.FLOAT64
    return Kind.TIMESTAMP if base.startswith("DateTime") else Kind.STRING


def staged_type(type: pa.DataType) -> str:
    """The type of a column of the raw table, into which Parquet is read."""
    if pa.types.is_timestamp(type):
        return TIME
    if pa.types.is_decimal(type):
        return "Decimal(38, 18)"
    return next((name for name, native in _NATIVE.items() if native == type), "String")


def column_value(value: str, staged: pa.DataType, cast: str, type: str) -> ColumnValue:
    """How a staged value becomes a value of a column of that type, cast to `cast` first where it is given."""
    target = bare(type)
    if cast:
        inner = _cast(value, staged, bare(check_sql_type(cast)))
        fitted = f"accurateCastOrNull({inner}, {DIALECT.literal(target)})"
    elif _NATIVE.get(target) == staged or (target == TIME and pa.types.is_timestamp(staged)):
        return ColumnValue(value)
    else:
        fitted = _cast(value, staged, target)
    original = f"toJSONString(assumeNotNull({value}))"
    return ColumnValue(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL", original)


def _cast(value: str, staged: pa.DataType, target: str) -> str:
    is_time = target.startswith("DateTime")
    if is_time and pa.types.is_string(staged):
        value = f"parseDateTime64BestEffortOrNull({value}, 6, 'UTC')"
    elif is_time is not pa.types.is_timestamp(staged):
        # ClickHouse casts any number to a time, and a time to a number; as texts they do not fit
        value = f"toString({value})"
    return f"accurateCastOrNull({value}, {DIALECT.literal(target)})"
