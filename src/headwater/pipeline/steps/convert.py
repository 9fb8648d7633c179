"""Conversions: Spark SQL from the JSON types of a field to the kind of its column.

A value is converted only where nothing is lost: 5.0 becomes the integer 5, 5.5 does not; "7" becomes 7,
"7 days" does not. A value that does not convert is NULL here, and the projection puts it into
`_unmapped_data`.
"""

from __future__ import annotations

from typing import Literal

from headwater.destinations.column_types import Kind
from headwater.pipeline.steps.field_tree import PLAIN, TEXT, JsonTypes

ParseAs = Literal["boolean", "bigint", "double", "string", "variant"]

NUMBER = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
INTEGER = "^-?[0-9]+$"
# A bare year or time of day would pass Spark's own cast.
MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$"
EXACT = 2**53  # integers up to here are exact in a double

_NUMBERS = JsonTypes.BOOL | JsonTypes.INT64 | JsonTypes.FLOAT64
_NATIVE: dict[str, Kind] = {
    "boolean": Kind.BOOL,
    "bigint": Kind.INT64,
    "double": Kind.FLOAT64,
}


def identifier(name: str) -> str:
    """A name, quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a Spark SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\u0000")
    # Spark would replace `${...}` by a setting or an environment variable, even in a literal (G12)
    return "'" + escaped.replace("$", "\\u0024") + "'"


def parse_type(json_types: JsonTypes, kind: Kind) -> ParseAs:
    """The type that the JSON parser reads a path as: the column's own if all values have it, else text.

    A variant only where text cannot distinguish a string from a number that looks like it.
    """
    values = json_types & (TEXT | PLAIN)
    if kind is Kind.JSON or (JsonTypes.OBJECT in json_types and values):
        return "variant"
    if kind is Kind.STRING:
        return "string"
    if values & TEXT and values & PLAIN:
        return "variant"
    if kind is Kind.BOOL and values == JsonTypes.BOOL:
        return "boolean"
    if kind is Kind.INT64 and values == JsonTypes.INT64:
        return "bigint"
    if kind is Kind.FLOAT64 and not values & ~(JsonTypes.INT64 | JsonTypes.FLOAT64):
        return "double"
    return "string"


def may_not_fit(json_types: JsonTypes, kind: Kind) -> bool:
    """Whether a value of these JSON types may not convert to the kind."""
    if kind in (Kind.STRING, Kind.JSON):
        return False
    allowed = {
        Kind.BOOL: JsonTypes.BOOL,
        Kind.INT64: JsonTypes.BOOL | JsonTypes.INT64,
        Kind.FLOAT64: _NUMBERS,
        Kind.TIMESTAMP: JsonTypes.TIMESTAMP,
    }[kind]
    return bool(json_types & (TEXT | PLAIN) & ~allowed)


def value_sql(sql: str, parsed_as: ParseAs, json_types: JsonTypes, kind: Kind) -> str:
    """SQL of the value in the column's type; NULL where it is missing or does not convert."""
    values = json_types & (TEXT | PLAIN)
    if parsed_as not in ("string", "variant"):
        if _NATIVE[parsed_as] is kind:
            return sql
        sql = f"cast({sql} AS string)"
    elif parsed_as == "variant":
        if kind is Kind.JSON:
            return f"to_json({sql})"
        text = f"cast({sql} AS string)"
        sql = f"if({is_object(sql)}, NULL, {text})" if JsonTypes.OBJECT in json_types else text
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
            return _float(sql, values)
        case Kind.TIMESTAMP:
            moment = f"try_cast({sql} AS timestamp)"
            return (
                moment
                if values == JsonTypes.TIMESTAMP
                else f"CASE WHEN {sql} RLIKE '{MOMENT}' THEN {moment} END"
            )


def original_json_sql(sql: str, parsed_as: ParseAs, json_types: JsonTypes) -> str:
    """SQL of the value as JSON text."""
    if parsed_as == "string":
        # to_json quotes and escapes only inside a structure
        return (
            f"substring(to_json(array({sql})), 2, length(to_json(array({sql}))) - 2)"
            if json_types & TEXT
            else sql
        )
    if parsed_as == "variant":
        text = f"to_json({sql})"
        return f"if({is_object(sql)}, NULL, {text})" if JsonTypes.OBJECT in json_types else text
    return f"cast({sql} AS string)"


def is_object(sql: str) -> str:
    """SQL: whether a variant is an object."""
    return f"startswith(schema_of_variant({sql}), 'OBJECT')"


def _integer(sql: str, values: JsonTypes) -> str:
    whole = f"try_cast({sql} AS bigint)"
    truth = f"WHEN {sql} = 'true' THEN 1L WHEN {sql} = 'false' THEN 0L"
    if not values & ~(JsonTypes.BOOL | JsonTypes.INT64):
        return f"CASE {truth} ELSE {whole} END"
    double = f"try_cast({sql} AS double)"
    exact = f"{double} = floor({double}) AND abs({double}) <= {EXACT}"
    return (
        f"CASE {truth} WHEN {sql} RLIKE '{INTEGER}' THEN {whole} "
        f"WHEN {sql} RLIKE '{NUMBER}' AND {exact} THEN cast({double} AS bigint) END"
    )


def _float(sql: str, values: JsonTypes) -> str:
    number = f"try_cast({sql} AS double)"
    if values & (JsonTypes.TOO_LARGE | TEXT):
        number = f"nullif(nullif({number}, double('Infinity')), double('-Infinity'))"
    truth = ""
    if values & ~(JsonTypes.INT64 | JsonTypes.FLOAT64):
        truth = f"WHEN {sql} = 'true' THEN cast(1 AS double) WHEN {sql} = 'false' THEN cast(0 AS double) "
    if not values & ~_NUMBERS:
        return f"CASE {truth}ELSE {number} END" if truth else number
    return f"CASE {truth}WHEN {sql} RLIKE '{NUMBER}' THEN {number} END"
