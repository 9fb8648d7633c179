"""ClickHouse's names, texts and types. Its quotes know backslashes, so the usual SQL quoting does not do."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from headwater.destinations.column_types import Kind
from headwater.destinations.sql.transactional import Fit
from headwater.destinations.table import UNMAPPED, check_sql_type

__all__ = ["TIME", "bare", "fit", "kind_of", "listed", "literal", "quoted", "staged_type"]

TIME = "DateTime64(6, 'UTC')"
_NATURAL = {"String": pa.string(), "Float64": pa.float64(), "Int64": pa.int64(), "UInt8": pa.bool_()}
_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")


def quoted(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def listed(names: Iterable[str]) -> str:
    """Identifiers, separated by commas."""
    return ", ".join(quoted(name) for name in names)


def literal(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def bare(type: str) -> str:
    """The type without what says how it is stored and that it may be NULL."""
    while wrapped := _WRAPPED.fullmatch(type):
        type = wrapped[1]
    return type


def kind_of(name: str, type: str) -> Kind:
    """What values of the column are staged as."""
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
    """The type of a staged column, as Parquet is read into it."""
    if pa.types.is_timestamp(type):
        return TIME
    if pa.types.is_decimal(type):
        return "Decimal(38, 18)"
    return next((name for name, natural in _NATURAL.items() if natural == type), "String")


def fit(value: str, staged: pa.DataType, cast: str, type: str) -> Fit:
    """How a staged value gets into a column of that type, cast to `cast` first where that is given."""
    target = bare(type)
    if cast:
        inner = _cast(value, staged, bare(check_sql_type(cast)))
        fitted = f"accurateCastOrNull({inner}, {literal(target)})"
    elif _NATURAL.get(target) == staged or (target == TIME and pa.types.is_timestamp(staged)):
        return Fit(value)
    else:
        fitted = _cast(value, staged, target)
    return Fit(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL")


def _cast(value: str, staged: pa.DataType, target: str) -> str:
    timely = target.startswith("DateTime")
    if timely and pa.types.is_string(staged):
        value = f"parseDateTime64BestEffortOrNull({value}, 6, 'UTC')"
    elif timely is not pa.types.is_timestamp(staged):
        # ClickHouse would take any number for a time, and the other way round; as texts they do not fit
        value = f"toString({value})"
    return f"accurateCastOrNull({value}, {literal(target)})"
