"""Names and texts in Spark SQL, and conversions of values that the pipeline itself makes.

The values of events are converted by ParseEvents.java, at the token. Here are constants of a mapping and the
results of lookups.
"""

from __future__ import annotations

from headwater.destinations.column_types import Kind
from headwater.pipeline.steps.field_tree import PLAIN, TEXT, JsonTypes

NUMBER = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
DECIMAL = "^-?[0-9]{1,20}([.][0-9]{1,18})?$"
"""What a decimal(38,18) has all digits of."""
# What every double of that many digits gives back.
_SHORT = "^-?[0-9.]{1,15}([eE][+-]?[12]?[0-9]{1,2})?$"
_FINE = "[.][0-9]{6}[0-9]*[1-9]"
# A bare year or time of day would pass Spark's own cast.
MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$"


def identifier(name: str) -> str:
    """A name, quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a Spark SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\u0000")
    # Spark would replace `${...}` by a setting or an environment variable, even in a literal (G12)
    return "'" + escaped.replace("$", "\\u0024") + "'"


def may_not_fit(json_types: JsonTypes, kind: Kind) -> bool:
    """Whether a value of these JSON types may not convert to the kind."""
    match kind:
        case Kind.JSON:
            return False
        case Kind.STRING:
            return JsonTypes.BROKEN_TEXT in json_types
        case Kind.BOOL:
            allowed = JsonTypes.BOOL
        case Kind.INT64:
            allowed = JsonTypes.BOOL | JsonTypes.INT64
        case Kind.FLOAT64:
            if JsonTypes.LARGE_INT64 in json_types:
                return True
            allowed = JsonTypes.BOOL | JsonTypes.INT64 | JsonTypes.FLOAT64
        case Kind.TIMESTAMP:
            if JsonTypes.FINE_TIMESTAMP in json_types:
                return True
            allowed = JsonTypes.TIMESTAMP
    return bool(json_types & (TEXT | PLAIN) & ~allowed)


def made_value_sql(text: str, kind: Kind) -> str:
    """SQL of a value of ours in the kind of a column, or NULL; `text` is SQL of its text."""
    match kind:
        case Kind.STRING:
            return text
        case Kind.JSON:
            return made_json_sql(text, TEXT)
        case Kind.BOOL:
            return f"CASE WHEN {text} IN ('true', '1') THEN true WHEN {text} IN ('false', '0') THEN false END"
        case Kind.INT64:
            digits = f"regexp_replace({text}, '[.]0+$', '')"
            return (
                f"CASE {text} WHEN 'true' THEN 1L WHEN 'false' THEN 0L ELSE try_cast({digits} AS bigint) END"
            )
        case Kind.FLOAT64:
            double = f"try_cast({text} AS double)"
            # as texts: the digits that a double shows are those that every product writes
            same = (
                f"{text} RLIKE '{_SHORT}' OR {_plain_exponent(text)} = "
                f"{_plain_exponent(f'cast({double} AS string)')} OR ({text} RLIKE '{DECIMAL}' "
                f"AND try_cast({text} AS decimal(38,18)) = try_cast({double} AS decimal(38,18)))"
            )
            number = f"CASE WHEN {text} RLIKE '{NUMBER}' AND ({same}) THEN {double} END"
            return f"CASE {text} WHEN 'true' THEN 1D WHEN 'false' THEN 0D ELSE {number} END"
        case Kind.TIMESTAMP:
            moment = f"{text} RLIKE '{MOMENT}' AND NOT {text} RLIKE '{_FINE}'"
            return f"CASE WHEN {moment} THEN try_cast({text} AS timestamp) END"


def _plain_exponent(text: str) -> str:
    """SQL of a number's text with one spelling of its exponent: 1E300, not 1e+300 or 1.0E300."""
    for old, new in (("E+", "E"), ("E-0", "E-"), (".0E", "E")):
        text = f"replace({text if old != 'E+' else f'upper({text})'}, '{old}', '{new}')"
    return text


def made_json_sql(text: str, json_types: JsonTypes) -> str:
    """SQL of a value of ours as JSON text."""
    if not json_types & TEXT:
        return text
    # to_json quotes and escapes only inside a structure
    return f"substring(to_json(array({text})), 2, length(to_json(array({text}))) - 2)"
