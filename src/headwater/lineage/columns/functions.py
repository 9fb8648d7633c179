"""Rules for expressions that are more than functions of their arguments: choices, aggregates, windows…"""

from __future__ import annotations

from typing import Any

from headwater.lineage.columns.edges import (
    AGGREGATION,
    CONDITIONAL,
    COUNTED,
    EMPTY,
    IDENTITY,
    MASKED,
    SORT,
    TRANSFORMATION,
    WINDOW,
    Edges,
    bits,
    union,
)
from headwater.lineage.columns.expressions import Scope, expression
from headwater.lineage.columns.values import ELEMENT, Parts, Plain, Value, choice, stepped
from headwater.lineage.plan import Expression

__all__: list[str] = []


@expression(
    "CaseWhen", says="values are TRANSFORMATION, conditions CONDITIONAL; equal branches are the branch"
)
def _case(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    conditions, values = kids[0:-1:2], kids[1::2]
    if len(kids) % 2:
        values = [*values, kids[-1]]
    return _choice(scope, conditions, values, whole=bool(len(kids) % 2))


@expression("If", says="like CASE WHEN; `if(x is null, null, what is made of x)` is what is made of x")
def _if(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    condition, then, other = kids
    if condition[:2] == ["f", "IsNull"] and then[0] == "l":
        # what INSERT makes of every struct, to put its fields in the table's order
        made = scope.value(other)
        if _columns(scope, scope.edges(condition)) <= _columns(scope, made.edges):
            return made
    return _choice(scope, kids[:1], kids[1:], whole=True)


def _columns(scope: Scope, edges: Edges) -> set[tuple[int, str]]:
    sources = (scope.graph.sources.all[place] for place in bits(edges.all()))
    return {(source.leaf, source.path[0]) for source in sources}


@expression("Nvl2", says="the first argument is CONDITIONAL, the others TRANSFORMATION")
def _nvl2(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return _choice(scope, kids[:1], kids[1:], whole=True)


def _choice(scope: Scope, conditions: list[Expression], values: list[Expression], *, whole: bool) -> Value:
    if whole and all(value == values[0] for value in values):
        # what UPDATE makes of the columns that it leaves alone: if(condition, a, a)
        return scope.value(values[0])
    return choice([scope.value(value) for value in values], scope.used(conditions, CONDITIONAL))


@expression("Coalesce", "IfNull", "Nvl", says="every argument is TRANSFORMATION; a single one is itself")
def _coalesce(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    if len(kids) == 1:
        return scope.value(kids[0])
    return choice([scope.value(kid) for kid in kids])


@expression(
    "KnownNotNull",
    "KnownNullable",
    "KnownFloatingPointNormalized",
    "AssertNotNull",
    "TempResolvedColumn",
    "NamedArgumentExpression",
    "CheckOverflowInTableInsert",
    "UnscaledPrecision",
    "PromotePrecision",
    "WithField",
    says="the argument itself",
)
def _same(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return scope.value(kids[0])


@expression(
    "Cast",
    "AnsiCast",
    "TryCast",
    says="TRANSFORMATION, also of each field of a struct; to the type that it has: the argument itself",
)
def _cast(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    if isinstance(value, Parts) and isinstance(extra, list) and len(extra) == len(value.parts):
        # a cast of structs goes by position, and may give its fields other names
        value = Parts(dict(zip(extra, value.parts.values(), strict=True)), value.base)
    return stepped(value, TRANSFORMATION)


@expression(
    "Md5",
    "Sha1",
    "Sha2",
    "Crc32",
    "XxHash64",
    "Murmur3Hash",
    "HiveHash",
    "Mask",
    "AesEncrypt",
    "TryAesEncrypt",
    says="TRANSFORMATION with masking: the value can no more be read",
)
def _mask(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Plain(union(*(scope.edges(kid) for kid in kids)).step(MASKED))


@expression(
    "AggregateExpression",
    says="AGGREGATION of the arguments; counts mask; FILTER (WHERE …) is CONDITIONAL",
)
def _aggregate(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    function = kids[0]
    chosen = scope.used(kids[1:], CONDITIONAL)
    if function[0] != "f":
        return stepped(scope.value(function), AGGREGATION, chosen)
    cls, arguments = function[1], function[2]
    if cls in ("Count", "CountIf", "HyperLogLogPlusPlus"):
        return Plain(union(_all(scope, arguments).step(COUNTED), chosen))
    if cls in ("MaxBy", "MinBy", "PivotFirst"):
        value, order = (arguments[1], arguments[0]) if cls == "PivotFirst" else (arguments[0], arguments[1])
        return stepped(scope.value(value), AGGREGATION, union(scope.used([order], CONDITIONAL), chosen))
    if len(arguments) == 1:
        value = stepped(scope.value(arguments[0]), AGGREGATION, chosen)
        return Parts({ELEMENT: value}) if cls in ("CollectList", "CollectSet") else value
    return Plain(union(_all(scope, arguments).step(AGGREGATION), chosen))


def _all(scope: Scope, arguments: list[Expression]) -> Edges:
    return union(EMPTY, *(scope.edges(argument) for argument in arguments))


@expression(
    "WindowExpression", says="the function's own edges; PARTITION BY, ORDER BY and the frame are WINDOW"
)
def _window(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return stepped(scope.value(kids[0]), IDENTITY, scope.used(kids[1:], WINDOW))


@expression(
    "Rank",
    "DenseRank",
    "PercentRank",
    "RowNumber",
    "CumeDist",
    "NTile",
    says="no value of a column, only its place: WINDOW",
)
def _rank(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Plain(scope.used(kids, WINDOW))


@expression("SortOrder", says="inside an aggregate (`listagg … WITHIN GROUP`): SORT")
def _order(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Plain(scope.used(kids[:1], SORT))
