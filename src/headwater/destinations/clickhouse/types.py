"""ClickHouse's dialect and types."""

from __future__ import annotations

import re

from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.sql_destination import StagedColumn
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.staged_files import Form, form_of

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
    original = f"toJSONString(assumeNotNull({value}))"
    return ColumnValue(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL", original)


def _cast(value: str, form: Form, target: str) -> str:
    is_time = target.startswith("DateTime")
    if is_time and form is Form.TEXT:
        value = f"parseDateTime64BestEffortOrNull({value}, 6, 'UTC')"
    elif is_time is not (form is Form.TIME):
        # ClickHouse casts any number to a time, and a time to a number; as texts they do not fit
        value = f"toString({value})"
    return f"accurateCastOrNull({value}, {DIALECT.literal(target)})"
