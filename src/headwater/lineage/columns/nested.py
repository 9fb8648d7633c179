"""Rules for structs, arrays, maps, JSON and variants, and for lambdas over them: edges down to the part."""

from __future__ import annotations

import re
from typing import Any

from headwater.lineage.columns.edges import CONDITIONAL, EMPTY, IDENTITY, TRANSFORMATION, Edges, union
from headwater.lineage.columns.expressions import Scope, expression
from headwater.lineage.columns.values import (
    ELEMENT,
    KEY,
    NOTHING,
    VALUE,
    Parts,
    Plain,
    Value,
    json_at,
    merge,
    stepped,
)
from headwater.lineage.plan import Expression

__all__ = ["json_path"]


@expression("GetStructField", says="the field of the struct, by path")
def _field(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return scope.value(kids[0]).part(str(extra))


@expression("GetArrayStructFields", says="the field of each element, by path")
def _fields(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Parts({ELEMENT: scope.value(kids[0]).part(ELEMENT).part(str(extra))})


@expression(
    "GetArrayItem",
    "ElementAt",
    "TryElementAt",
    "Get",
    says="the element by path `_element`, of a map `value`",
)
def _item(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return stepped(
        scope.value(kids[0]).part(str(extra or ELEMENT)), IDENTITY, scope.used(kids[1:], CONDITIONAL)
    )


@expression("GetMapValue", says="the value by path `value`; a key that is a column is CONDITIONAL")
def _map_value(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return stepped(scope.value(kids[0]).part(VALUE), IDENTITY, scope.used(kids[1:], CONDITIONAL))


@expression("CreateNamedStruct", says="a struct whose fields keep their own edges")
def _struct(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    names = [
        str(name[1]) if name[0] == "l" and len(name) > 1 else str(at) for at, name in enumerate(kids[::2])
    ]
    return Parts(dict(zip(names, (scope.value(kid) for kid in kids[1::2]), strict=False)))


@expression("UpdateFields", says="the struct with some fields replaced, added or dropped")
def _update(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    parts: dict[str, Value] = {}
    values = iter(kids[1:])
    for operation in extra or []:
        name = operation[1:]
        parts[name] = scope.value(next(values)) if operation[0] == "+" else NOTHING
    return Parts(parts, scope.value(kids[0]))


@expression("CreateArray", says="an array whose elements have the edges of all of its arguments")
def _array(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Parts({ELEMENT: merge([scope.value(kid) for kid in kids])})


@expression("CreateMap", says="a map whose keys and values keep their own edges")
def _map(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    keys, values = ([scope.value(kid) for kid in some] for some in (kids[::2], kids[1::2]))
    return Parts({KEY: merge(keys), VALUE: merge(values)})


@expression("MapFromArrays", says="keys from the first array, values from the second")
def _map_of_arrays(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    keys, values = (scope.value(kid).part(ELEMENT) for kid in kids[:2])
    return Parts({KEY: keys, VALUE: values})


@expression("MapKeys", says="an array of the map's keys")
def _map_keys(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Parts({ELEMENT: scope.value(kids[0]).part(KEY)})


@expression("MapValues", says="an array of the map's values")
def _map_values(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return Parts({ELEMENT: scope.value(kids[0]).part(VALUE)})


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
    return stepped(merge([scope.value(kid) for kid in kids]), TRANSFORMATION)


# --- JSON and variants


@expression(
    "JsonToStructs",
    "ParseJson",
    "TryParseJson",
    says="parsed text: each field that is taken out of it is the JSON pointer in the text's column",
)
def _parsed(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    return json_at(scope.graph.sources, scope.value(kids[0]))


@expression("GetJsonObject", "VariantGet", "TryVariantGet", says="a path that is a literal: the JSON pointer")
def _at_path(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    path = json_path(kids[1])
    value = scope.value(kids[0])
    if path is None:
        return Plain(union(value.edges, scope.edges(kids[1])).step(TRANSFORMATION))
    return json_at(scope.graph.sources, value, path)


_STEP = re.compile(r"\.\.?([^.\[\]]+)|\[(?:'([^']*)'|\"([^\"]*)\"|(\d+)|(\*))\]")


def json_path(literal: Expression) -> list[str] | None:
    """The steps of a path such as `$.a['b c'][0]`; None if it is no literal or not such a path."""
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


@expression("ArrayTransform", says="elements are what the lambda makes of the array's elements")
def _transform(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    made = Parts({ELEMENT: scope.call(kids[1], [element])})
    return stepped(made, IDENTITY, _ignored(scope, kids[1], [element]))


def _ignored(scope: Scope, function: Expression, arguments: list[Value]) -> Edges:
    """Edges for what a lambda runs over but does not look at: how many there are still shows."""
    with_them = scope.call(function, arguments).edges
    without = scope.call(function, [NOTHING] * len(arguments)).edges
    if with_them != without:
        return EMPTY
    return union(*(argument.edges for argument in arguments)).step(TRANSFORMATION)


@expression("ArrayFilter", says="TRANSFORMATION of the array; the lambda is CONDITIONAL")
def _filter(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    array = scope.value(kids[0])
    chosen = scope.call(kids[1], [array.part(ELEMENT)]).edges
    return stepped(array, TRANSFORMATION, chosen.step(CONDITIONAL))


@expression("MapFilter", says="TRANSFORMATION of the map; the lambda is CONDITIONAL")
def _map_filter(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    chosen = scope.call(kids[1], [value.part(KEY), value.part(VALUE)]).edges
    return stepped(value, TRANSFORMATION, chosen.step(CONDITIONAL))


@expression("TransformValues", says="the map's keys, and what the lambda makes of it")
def _transform_values(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    return Parts({KEY: value.part(KEY), VALUE: scope.call(kids[1], [value.part(KEY), value.part(VALUE)])})


@expression("TransformKeys", says="the map's values, and what the lambda makes of it")
def _transform_keys(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    value = scope.value(kids[0])
    return Parts({KEY: scope.call(kids[1], [value.part(KEY), value.part(VALUE)]), VALUE: value.part(VALUE)})


@expression("ArrayExists", "ArrayForAll", says="TRANSFORMATION of the array and of what the lambda uses")
def _test(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    used = scope.call(kids[1], [element]).edges
    return Plain(union(used, _ignored(scope, kids[1], [element])).step(TRANSFORMATION))


@expression("ArraySort", says="TRANSFORMATION of the array; other columns in the comparison are CONDITIONAL")
def _sorted(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    compared = scope.call(kids[1], [NOTHING, NOTHING]).edges if len(kids) > 1 else NOTHING.edges
    return stepped(scope.value(kids[0]), TRANSFORMATION, compared.step(CONDITIONAL))


@expression("ArrayAggregate", says="TRANSFORMATION of the start value and of what the lambdas use")
def _fold(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    element = scope.value(kids[0]).part(ELEMENT)
    total = scope.value(kids[1])
    for _ in range(2):  # the second time the result of the first is an input: nothing more can come to it
        total = merge([total, scope.call(kids[2], [total, element])])
    finished = scope.call(kids[3], [total]) if len(kids) > 3 else total
    return stepped(finished, TRANSFORMATION)


@expression("ZipWith", says="elements are what the lambda makes of both arrays' elements")
def _zip(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    elements = [scope.value(kid).part(ELEMENT) for kid in kids[:2]]
    made = Parts({ELEMENT: scope.call(kids[2], elements)})
    return stepped(made, IDENTITY, _ignored(scope, kids[2], elements))


@expression("MapZipWith", says="keys of both maps, and what the lambda makes of their values")
def _zip_maps(scope: Scope, kids: list[Expression], extra: Any) -> Value:
    left, right = (scope.value(kid) for kid in kids[:2])
    keys = merge([left.part(KEY), right.part(KEY)])
    return Parts({KEY: keys, VALUE: scope.call(kids[2], [keys, left.part(VALUE), right.part(VALUE)])})
