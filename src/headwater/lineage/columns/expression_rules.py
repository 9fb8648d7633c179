"""Rules for expressions: choices, casts, aggregates, windows, nested types, JSON, lambdas.

An expression without a rule here gets the default edges of column_graph.py.
"""

from __future__ import annotations

import re
from typing import Any

from headwater.lineage.columns.column_graph import Scope, expression
from headwater.lineage.columns.edge_sets import (
    AGGREGATION,
    CONDITIONAL,
    COUNT,
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
from headwater.lineage.columns.values import (
    ELEMENT,
    KEY,
    NO_INPUT,
    VALUE,
    NestedValue,
    ScalarValue,
    Sources,
    Value,
    any_of,
    json_at,
    one_of,
    transformed,
)
from headwater.lineage.jvm.plan import Expression


@expression(
    "CaseWhen", says="values are TRANSFORMATION, conditions CONDITIONAL; equal branches are the branch"
)
def _case(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    conditions, values = kids[0:-1:2], kids[1::2]
    if len(kids) % 2:
        values = [*values, kids[-1]]
    return _choice(scope, conditions, values, whole=bool(len(kids) % 2))


@expression("If", says="like CASE WHEN; `if(x is null, null, f(x))` is `f(x)`")
def _if(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    condition, then, other = kids
    if condition[:2] == ["f", "IsNull"] and then[0] == "l":
        # INSERT writes structs in this form, to reorder their fields
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
        # UPDATE writes unchanged columns in this form: if(condition, a, a)
        return scope.value(values[0])
    return one_of([scope.value(value) for value in values], scope.used(conditions, CONDITIONAL))


@expression("NullIf", says="the first argument, TRANSFORMATION; both are compared: CONDITIONAL")
def _nullif(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return one_of([scope.value(kids[0]), NO_INPUT], scope.used(kids[1:], CONDITIONAL))


@expression(
    "VariableReference",
    says="the value of a SQL variable, which another statement sets: listed in `unknown`",
)
def _variable(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    scope.graph.gap("variable", f"the value of the SQL variable {extra or ''} comes from another statement")
    return NO_INPUT


@expression("Coalesce", "IfNull", "Nvl", says="every argument is TRANSFORMATION; a single one is itself")
def _coalesce(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    if len(kids) == 1:
        return scope.value(kids[0])
    return one_of([scope.value(kid) for kid in kids])


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
    if isinstance(value, NestedValue) and isinstance(extra, list) and len(extra) == len(value.parts):
        # a cast between structs is by position, and may rename fields
        value = NestedValue(dict(zip(extra, value.parts.values(), strict=True)), value.base)
    return transformed(value, TRANSFORMATION)


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
    says="TRANSFORMATION with masking: the value can no longer be read",
)
def _mask(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return ScalarValue(union(*(scope.edges(kid) for kid in kids)).then(MASKED))


@expression(
    "AggregateExpression",
    says="AGGREGATION of the arguments; counts mask; FILTER (WHERE …) is CONDITIONAL",
)
def _aggregate(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    function = kids[0]
    chosen = scope.used(kids[1:], CONDITIONAL)
    if function[0] != "f":
        return transformed(scope.value(function), AGGREGATION, chosen)
    cls, arguments = function[1], function[2]
    if cls in ("Count", "CountIf", "HyperLogLogPlusPlus"):
        return ScalarValue(union(_all(scope, arguments).then(COUNT), chosen))
    if cls in ("MaxBy", "MinBy", "PivotFirst"):
        value, order = (arguments[1], arguments[0]) if cls == "PivotFirst" else (arguments[0], arguments[1])
        return transformed(scope.value(value), AGGREGATION, union(scope.used([order], CONDITIONAL), chosen))
    if len(arguments) == 1:
        value = transformed(scope.value(arguments[0]), AGGREGATION, chosen)
        return NestedValue({ELEMENT: value}) if cls in ("CollectList", "CollectSet") else value
    return ScalarValue(union(_all(scope, arguments).then(AGGREGATION), chosen))


def _all(scope: Scope, arguments: list[Expression]) -> Edges:
    return union(EMPTY, *(scope.edges(argument) for argument in arguments))


@expression(
    "WindowExpression", says="the function's own edges; PARTITION BY, ORDER BY and the frame are WINDOW"
)
def _window(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return transformed(scope.value(kids[0]), IDENTITY, scope.used(kids[1:], WINDOW))


@expression(
    "Rank",
    "DenseRank",
    "PercentRank",
    "RowNumber",
    "CumeDist",
    "NTile",
    says="no value of a column, only its rank: WINDOW",
)
def _rank(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return ScalarValue(scope.used(kids, WINDOW))


@expression("SortOrder", says="inside an aggregate (`listagg … WITHIN GROUP`): SORT")
def _order(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return ScalarValue(scope.used(kids[:1], SORT))


@expression("GetStructField", says="the field of the struct, by path")
def _field(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return scope.value(kids[0]).part(str(extra))


@expression("GetArrayStructFields", says="the field of each element, by path")
def _fields(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return NestedValue({ELEMENT: scope.value(kids[0]).part(ELEMENT).part(str(extra))})


@expression(
    "GetArrayItem",
    "ElementAt",
    "TryElementAt",
    "Get",
    says="the element by path `_element`, of a map `value`",
)
def _item(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return transformed(
        scope.value(kids[0]).part(str(extra or ELEMENT)), IDENTITY, scope.used(kids[1:], CONDITIONAL)
    )


@expression("GetMapValue", says="the value by path `value`; a key that is a column is CONDITIONAL")
def _map_value(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return transformed(scope.value(kids[0]).part(VALUE), IDENTITY, scope.used(kids[1:], CONDITIONAL))


@expression("CreateNamedStruct", says="a struct whose fields keep their own edges")
def _struct(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    names = [
        str(name[1]) if name[0] == "l" and len(name) > 1 else str(at) for at, name in enumerate(kids[::2])
    ]
    return NestedValue(dict(zip(names, (scope.value(kid) for kid in kids[1::2]), strict=False)))


@expression("UpdateFields", says="the struct with some fields replaced, added or dropped")
def _update(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    parts: dict[str, Value] = {}
    values = iter(kids[1:])
    for operation in extra or []:
        name = operation[1:]
        parts[name] = scope.value(next(values)) if operation[0] == "+" else NO_INPUT
    return NestedValue(parts, scope.value(kids[0]))


@expression("CreateArray", says="an array whose elements have the edges of all of its arguments")
def _array(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return NestedValue({ELEMENT: any_of([scope.value(kid) for kid in kids])})


@expression("CreateMap", says="a map whose keys and values keep their own edges")
def _map(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    keys, values = ([scope.value(kid) for kid in some] for some in (kids[::2], kids[1::2]))
    return NestedValue({KEY: any_of(keys), VALUE: any_of(values)})


@expression("MapFromArrays", says="keys from the first array, values from the second")
def _map_of_arrays(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    keys, values = (scope.value(kid).part(ELEMENT) for kid in kids[:2])
    return NestedValue({KEY: keys, VALUE: values})


@expression("MapKeys", says="an array of the map's keys")
def _map_keys(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return NestedValue({ELEMENT: scope.value(kids[0]).part(KEY)})


@expression("MapValues", says="an array of the map's values")
def _map_values(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return NestedValue({ELEMENT: scope.value(kids[0]).part(VALUE)})


@expression(
    "Concat",
    "ArrayUnion",
    "ArrayIntersect",
    "ArrayExcept",
    "Slice",
    "ArrayDistinct",
    "SortArray",
    "Reverse",
    "Shuffle",
    "ArrayCompact",
    "MapConcat",
    "ToVariantObject",
    says="TRANSFORMATION, also of each part",
)
def _parts_kept(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return transformed(any_of([scope.value(kid) for kid in kids]), TRANSFORMATION)


# --- JSON and variants


@expression(
    "JsonToStructs",
    "ParseJson",
    "TryParseJson",
    says="parsed text: each extracted field is a JSON pointer in the text's column",
)
def _parsed(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return json_at(scope.graph.sources, scope.value(kids[0]))


class _FlatJson(Value):
    """A parsed text whose fields have JSON pointers as their names, each with a number before it or none."""

    __slots__ = ("_sources", "_text")
    deep = True

    def __init__(self, sources: Sources, text: Value) -> None:
        super().__init__(text.edges.then(TRANSFORMATION))
        self._sources = sources
        self._text = text

    def part(self, name: str) -> Value:
        _, slash, path = name.partition("/")
        if not slash:
            return super().part(name)
        parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
        return json_at(self._sources, self._text, parts)


@expression("ParseEvents", says="parsed events of the pipeline: the name of a field is its JSON pointer")
def _parsed_events(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return _FlatJson(scope.graph.sources, scope.value(kids[0]))


@expression("GetJsonObject", "VariantGet", "TryVariantGet", says="a path that is a literal: the JSON pointer")
def _at_path(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    path = json_path(kids[1])
    value = scope.value(kids[0])
    if path is None:
        return ScalarValue(union(value.edges, scope.edges(kids[1])).then(TRANSFORMATION))
    return json_at(scope.graph.sources, value, path)


_STEP = re.compile(r"\.\.?([^.\[\]]+)|\[(?:'([^']*)'|\"([^\"]*)\"|(\d+)|(\*))\]")


def json_path(literal: Expression) -> list[str] | None:
    """The steps of a path such as `$.a['b c'][0]`; None if it is not a literal path."""
    if literal[0] != "l" or len(literal) < 2 or not isinstance(literal[1], str):
        return None
    text = literal[1].strip()
    if not text.startswith("$"):
        return None
    steps: list[str] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            return None
        steps.append(next(group for group in found.groups() if group is not None))
        at = found.end()
    return steps


# --- lambdas


@expression("ArrayTransform", says="elements are the lambda's results for the array's elements")
def _transform(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    made = NestedValue({ELEMENT: scope.call(kids[1], [element])})
    return transformed(made, IDENTITY, _ignored(scope, kids[1], [element]))


def _ignored(scope: Scope, function: Expression, arguments: list[Value]) -> Edges:
    """The edges of arguments that a lambda ignores: the number of elements still depends on them."""
    with_them = scope.call(function, arguments).edges
    without = scope.call(function, [NO_INPUT] * len(arguments)).edges
    if with_them != without:
        return EMPTY
    return union(*(argument.edges for argument in arguments)).then(TRANSFORMATION)


@expression("ArrayFilter", says="TRANSFORMATION of the array; the lambda is CONDITIONAL")
def _filter(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    array = scope.value(kids[0])
    chosen = scope.call(kids[1], [array.part(ELEMENT)]).edges
    return transformed(array, TRANSFORMATION, chosen.then(CONDITIONAL))


@expression("MapFilter", says="TRANSFORMATION of the map; the lambda is CONDITIONAL")
def _map_filter(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    chosen = scope.call(kids[1], [value.part(KEY), value.part(VALUE)]).edges
    return transformed(value, TRANSFORMATION, chosen.then(CONDITIONAL))


@expression("TransformValues", says="the map's keys, and the lambda's results")
def _transform_values(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    return NestedValue(
        {KEY: value.part(KEY), VALUE: scope.call(kids[1], [value.part(KEY), value.part(VALUE)])}
    )


@expression("TransformKeys", says="the map's values, and the lambda's results")
def _transform_keys(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    return NestedValue(
        {KEY: scope.call(kids[1], [value.part(KEY), value.part(VALUE)]), VALUE: value.part(VALUE)}
    )


@expression("ArrayExists", "ArrayForAll", says="TRANSFORMATION of the array and of the columns in the lambda")
def _test(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    used = scope.call(kids[1], [element]).edges
    return ScalarValue(union(used, _ignored(scope, kids[1], [element])).then(TRANSFORMATION))


@expression("ArraySort", says="TRANSFORMATION of the array; other columns in the comparison are CONDITIONAL")
def _sorted(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    compared = scope.call(kids[1], [NO_INPUT, NO_INPUT]).edges if len(kids) > 1 else NO_INPUT.edges
    return transformed(scope.value(kids[0]), TRANSFORMATION, compared.then(CONDITIONAL))


@expression("ArrayAggregate", says="TRANSFORMATION of the start value and of the columns in the lambdas")
def _fold(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    total = scope.value(kids[1])
    for _ in range(2):  # in the second round the first result is an input; further rounds add nothing
        total = any_of([total, scope.call(kids[2], [total, element])])
    finished = scope.call(kids[3], [total]) if len(kids) > 3 else total
    return transformed(finished, TRANSFORMATION)


@expression("ZipWith", says="elements are the lambda's results for both arrays' elements")
def _zip(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    elements = [scope.value(kid).part(ELEMENT) for kid in kids[:2]]
    made = NestedValue({ELEMENT: scope.call(kids[2], elements)})
    return transformed(made, IDENTITY, _ignored(scope, kids[2], elements))


@expression("MapZipWith", says="keys of both maps, and the lambda's results for their values")
def _zip_maps(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    left, right = (scope.value(kid) for kid in kids[:2])
    keys = any_of([left.part(KEY), right.part(KEY)])
    return NestedValue({KEY: keys, VALUE: scope.call(kids[2], [keys, left.part(VALUE), right.part(VALUE)])})
