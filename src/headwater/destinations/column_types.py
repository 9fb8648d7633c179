"""Logical types of columns, and their promotion: the typecast tree that decides between two types.

         STRING
         /    \\
    FLOAT64  TIMESTAMP
       |
     INT64
       |
      BOOL

`Capabilities.types` has the SQL type of each kind in a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import reduce


class Kind(StrEnum):
    """The logical type of a column. JSON is only for `_unmapped_data`; arrays are STRING, as JSON text."""

    BOOL = "BOOL"
    INT64 = "INT64"
    FLOAT64 = "FLOAT64"
    STRING = "STRING"
    TIMESTAMP = "TIMESTAMP"
    JSON = "JSON"


_PARENT = {
    Kind.BOOL: Kind.INT64,
    Kind.INT64: Kind.FLOAT64,
    Kind.FLOAT64: Kind.STRING,
    Kind.TIMESTAMP: Kind.STRING,
    Kind.JSON: Kind.STRING,
}

# The type names that a mapping may use for every destination; any other name is SQL of one product.
_NAMES = {
    "string": Kind.STRING,
    "text": Kind.STRING,
    "double": Kind.FLOAT64,
    "float64": Kind.FLOAT64,
    "integer": Kind.INT64,
    "int64": Kind.INT64,
    "boolean": Kind.BOOL,
    "bool": Kind.BOOL,
    "timestamp": Kind.TIMESTAMP,
}


_SQL_KINDS = {
    "boolean": Kind.BOOL,
    "tinyint": Kind.INT64,
    "smallint": Kind.INT64,
    "integer": Kind.INT64,
    "bigint": Kind.INT64,
    "real": Kind.FLOAT64,
    "float": Kind.FLOAT64,
    "double": Kind.FLOAT64,
    "double precision": Kind.FLOAT64,
    "decimal": Kind.FLOAT64,
    "numeric": Kind.FLOAT64,
    "json": Kind.JSON,
}


def kind_of_sql(sql_type: str, own: Mapping[str, Kind]) -> Kind:
    """The kind that values for a column of the type are staged as; `own` are a product's own types."""
    name = sql_type.lower().partition("(")[0]
    if name.startswith("timestamp"):
        return Kind.TIMESTAMP
    return own.get(name) or _SQL_KINDS.get(name, Kind.STRING)


def _ancestry(kind: Kind) -> list[Kind]:
    line = [kind]
    while line[-1] in _PARENT:
        line.append(_PARENT[line[-1]])
    return line


def promote(a: Kind, b: Kind) -> Kind:
    """The lowest common ancestor of two kinds in the typecast tree."""
    above = _ancestry(a)
    return next(kind for kind in _ancestry(b) if kind in above)


def promote_all(kinds: Iterable[Kind]) -> Kind:
    """The lowest common ancestor of at least one kind; the order does not matter."""
    return reduce(promote, kinds)


def kind_named(text: str) -> Kind | None:
    """The kind that a mapping's `type` names for every destination, or None if it is SQL of one product."""
    return _NAMES.get(text.strip().lower())
