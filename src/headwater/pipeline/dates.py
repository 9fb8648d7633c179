"""Parts of a moment as text: the directives of strftime, in Spark SQL."""

from __future__ import annotations

from headwater.pipeline.convert import literal

__all__ = ["DIRECTIVES", "date_sql"]

DIRECTIVES = {
    "Y": "date_format({0}, 'yyyy')",
    "y": "date_format({0}, 'yy')",
    "m": "date_format({0}, 'MM')",
    "d": "date_format({0}, 'dd')",
    "H": "date_format({0}, 'HH')",
    "M": "date_format({0}, 'mm')",
    "S": "date_format({0}, 'ss')",
    "j": "date_format({0}, 'DDD')",
    "b": "date_format({0}, 'MMM')",
    "B": "date_format({0}, 'MMMM')",
    "a": "date_format({0}, 'E')",
    "A": "date_format({0}, 'EEEE')",
    "V": "lpad(cast(extract(WEEK FROM {0}) AS string), 2, '0')",
    "G": "cast(extract(YEAROFWEEK FROM {0}) AS string)",
}


def date_sql(moment: str, pattern: str) -> str:
    """A moment written by a pattern such as `%Y_%m`; ValueError for a directive that is not known."""
    parts = []
    plain = ""
    characters = iter(pattern)
    for character in characters:
        if character != "%":
            plain += character
            continue
        directive = next(characters, "")
        if directive == "%":
            plain += "%"
            continue
        if directive not in DIRECTIVES:
            known = ", ".join(f"%{name}" for name in DIRECTIVES)
            raise ValueError(f"`%{directive}` is not known to `date`; known are {known}.")
        if plain:
            parts.append(literal(plain))
            plain = ""
        parts.append(DIRECTIVES[directive].format(f"({moment})"))
    if plain:
        parts.append(literal(plain))
    return f"concat({', '.join(parts)})" if parts else "''"
