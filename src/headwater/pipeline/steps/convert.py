"""How a value that was read becomes a value of its column: Spark SQL, by what was seen and what is wanted.

A value is only converted where nothing is lost: 5.0 becomes the integer 5, 5.5 does not; "7" becomes 7,
"7 days" does not. What does not convert is NULL here, and the projection puts it into `_unmapped_data`.
"""

from __future__ import annotations

from typing import Literal

from headwater.destinations.column_types import Kind
from headwater.pipeline.steps.batch_schema import PLAIN, TEXT, Seen

__all__ = ["Read", "can_fail", "choose_read", "identifier", "json_sql", "literal", "value_sql"]

Read = Literal["boolean", "bigint", "double", "decimal", "string", "variant"]

NUMBER = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
INTEGER = "^-?[0-9]+$"
# A bare year or time of day would pass Spark's own cast.
MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$"
EXACT = 2**53  # integers up to here are exact in a double
DECIMAL = "decimal(38,18)"

_NUMBERS = Seen.BOOL | Seen.INT64 | Seen.FLOAT64
_NATURAL: dict[str, Kind] = {
    "boolean": Kind.BOOL,
    "bigint": Kind.INT64,
    "double": Kind.FLOAT64,
    "decimal": Kind.FLOAT64,
}


def identifier(name: str) -> str:
    """A name as Spark SQL has to see it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as Spark SQL has to see it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\u0000")
    # Spark would put a setting or an environment variable in the place of `${...}`, even in a literal (G12)
    return "'" + escaped.replace("$", "\\u0024") + "'"


def choose_read(seen: Seen, kind: Kind, *, as_decimal: bool = False) -> Read:
    """What to have the JSON parser make of a path: the column's own type if all values have it, else text.

    A variant only where text would not be enough to tell a string from what looks like it.
    """
    values = seen & (TEXT | PLAIN)
    if kind is Kind.JSON or (Seen.OBJECT in seen and values):
        return "variant"
    if kind is Kind.STRING:
        return "string"
    if values & TEXT and values & PLAIN:
        return "variant"
    if kind is Kind.BOOL and values == Seen.BOOL:
        return "boolean"
    if kind is Kind.INT64 and values == Seen.INT64:
        return "bigint"
    if kind is Kind.FLOAT64 and not values & ~(Seen.INT64 | Seen.FLOAT64):
        if not as_decimal:
            return "double"
        # the parser takes a decimal's digits as they are, but fails the whole event on one that is too large
        return "string" if Seen.HUGE in seen else "decimal"
    return "string"


def can_fail(seen: Seen, kind: Kind, *, as_decimal: bool = False) -> bool:
    """Whether some value that was seen may not convert to the kind."""
    values = seen & (TEXT | PLAIN)
    if kind in (Kind.STRING, Kind.JSON):
        return False
    allowed = {
        Kind.BOOL: Seen.BOOL,
        Kind.INT64: Seen.BOOL | Seen.INT64,
        Kind.FLOAT64: _NUMBERS,
        Kind.TIMESTAMP: Seen.TIMESTAMP,
    }[kind]
    return bool(values & ~allowed) or (as_decimal and kind is Kind.FLOAT64 and Seen.HUGE in seen)


def value_sql(sql: str, read: Read, seen: Seen, kind: Kind, *, as_decimal: bool = False) -> str:
    """The value as the column's type, NULL where it is none or does not convert."""
    values = seen & (TEXT | PLAIN)
    if read not in ("string", "variant"):
        if _NATURAL[read] is kind:
            return sql
        sql = f"cast({sql} AS string)"
    elif read == "variant":
        if kind is Kind.JSON:
            return f"to_json({sql})"
        text = f"cast({sql} AS string)"
        sql = f"if({is_object(sql)}, NULL, {text})" if Seen.OBJECT in seen else text
    match kind:
        case Kind.STRING:
            return sql
        case Kind.JSON:
            return sql if not values & TEXT else f"to_json({sql})"
        case Kind.BOOL:
            return f"CASE WHEN {sql} IN ('true', '1') THEN true WHEN {sql} IN ('false', '0') THEN false END"
        case Kind.INT64:
            return _integer(sql, values)
        case Kind.FLOAT64:
            return _float(sql, values, DECIMAL if as_decimal else "double")
        case Kind.TIMESTAMP:
            moment = f"try_cast({sql} AS timestamp)"
            return (
                moment if values == Seen.TIMESTAMP else f"CASE WHEN {sql} RLIKE '{MOMENT}' THEN {moment} END"
            )


def json_sql(sql: str, read: Read, seen: Seen) -> str:
    """The value as JSON text, as the event had it."""
    if read == "string":
        # to_json quotes and escapes only inside a structure
        return (
            f"substring(to_json(array({sql})), 2, length(to_json(array({sql}))) - 2)" if seen & TEXT else sql
        )
    if read == "variant":
        text = f"to_json({sql})"
        return f"if({is_object(sql)}, NULL, {text})" if Seen.OBJECT in seen else text
    return f"cast({sql} AS string)"


def is_object(sql: str) -> str:
    """Whether a variant is an object."""
    return f"startswith(schema_of_variant({sql}), 'OBJECT')"


def _integer(sql: str, values: Seen) -> str:
    whole = f"try_cast({sql} AS bigint)"
    truth = f"WHEN {sql} = 'true' THEN 1L WHEN {sql} = 'false' THEN 0L"
    if not values & ~(Seen.BOOL | Seen.INT64):
        return f"CASE {truth} ELSE {whole} END"
    double = f"try_cast({sql} AS double)"
    exact = f"{double} = floor({double}) AND abs({double}) <= {EXACT}"
    return (
        f"CASE {truth} WHEN {sql} RLIKE '{INTEGER}' THEN {whole} "
        f"WHEN {sql} RLIKE '{NUMBER}' AND {exact} THEN cast({double} AS bigint) END"
    )


def _float(sql: str, values: Seen, type: str) -> str:
    number = f"try_cast({sql} AS {type})"
    if type == "double" and values & (Seen.BIG | TEXT):
        number = f"nullif(nullif({number}, double('Infinity')), double('-Infinity'))"
    truth = ""
    if values & ~(Seen.INT64 | Seen.FLOAT64):
        truth = f"WHEN {sql} = 'true' THEN cast(1 AS {type}) WHEN {sql} = 'false' THEN cast(0 AS {type}) "
    if not values & ~_NUMBERS:
        return f"CASE {truth}ELSE {number} END" if truth else number
    return f"CASE {truth}WHEN {sql} RLIKE '{NUMBER}' THEN {number} END"
