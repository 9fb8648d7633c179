"""Descriptions of edges: the expression of a column as short, SQL-like text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lineage.jvm.plan import Attribute, Expression

if TYPE_CHECKING:
    from headwater.lineage.columns.graph import ColumnGraph
    from headwater.lineage.columns.values import Value

_LONGEST = 200
_OPERATORS = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
    "And": "AND",
    "Or": "OR",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_WRAPPERS = {"AggregateExpression", "KnownNotNull", "AssertNotNull", "CheckOverflowInTableInsert"}


def descriptions_of(graph: ColumnGraph, columns: list[tuple[str, Attribute, Value]]) -> dict[str, str]:
    """The expression of each column that one computes; columns that are passed through have none."""
    names: dict[int, str] = {}
    for node in graph.plan.nodes:
        names.update((attribute.id, attribute.name) for attribute in node.out)
    made = graph.texts or {}
    names.update((number, one[2]) for number, one in made.items())
    found = {}
    for name, attribute, _ in columns:
        one = made.get(attribute.id)
        hops = 0
        while one is not None and one[3][0] == "a" and hops < len(made):
            one = made.get(one[3][1])
            hops += 1
        if one is not None:
            found[name] = _text(one[3], names, 8)[:_LONGEST]
    return found


def _text(one: Expression, names: dict[int, str], depth: int) -> str:
    tag = one[0]
    if tag == "a":
        return names.get(one[1], "?")
    if tag == "l":
        return repr(one[1]) if len(one) > 1 else "…"
    if tag == "=":
        return _text(one[3], names, depth)
    if tag == "q":
        return "(subquery)"
    if tag != "f":
        return "x"
    if depth <= 0:
        return "…"
    cls, kids = one[1], [_text(kid, names, depth - 1) for kid in one[2][:16]]
    if cls in _WRAPPERS and kids:
        return kids[0]
    if cls in _OPERATORS and len(kids) == 2:
        return f"({kids[0]} {_OPERATORS[cls]} {kids[1]})"
    if cls == "GetStructField":
        return f"{kids[0]}.{one[3]}"
    name = str(one[3]) if cls.endswith(("UDF", "UDAF")) and len(one) > 3 else _snake(cls)
    return f"{name}({', '.join(kids)})"


def _snake(cls: str) -> str:
    return "".join(
        f"_{c.lower()}" if c.isupper() and at else c.lower() for at, c in enumerate(cls.rstrip("$"))
    )
