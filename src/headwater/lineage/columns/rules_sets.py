"""Rules for nodes that match columns by position: set operations, CTEs, recursion, Expand, generators."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.lineage.columns.edges import FILTER, IDENTITY, JOIN, TRANSFORMATION, Edges, opaque, union
from headwater.lineage.columns.expressions import EXPRESSIONS, Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.values import (
    ELEMENT,
    KEY,
    NOTHING,
    VALUE,
    Plain,
    Value,
    json_at,
    merge,
    stepped,
)
from headwater.lineage.plan import Expression, Node

__all__: list[str] = []

# Each round adds inputs to columns; so many rounds let a value walk through every column of a wide recursion.
_MOST_ROUNDS = 64


@rule(
    "Union",
    "SequentialStreamingUnion",
    says="by position, every branch (by name: Spark has put them in order)",
)
def _union(graph: Graph, node: Node, scope: Scope) -> None:
    branches = graph.inputs(node)
    values = [merge(column) for column in zip(*branches, strict=False)]
    graph.define_all(node, [attribute.id for attribute in node.out], values)


@rule("Intersect", "Except", says="values of the left side; all columns of both sides are FILTER")
def _intersect(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, *(value.edges.step(FILTER) for values in graph.inputs(node) for value in values))


@rule("Expand", says="by position, every projection: cube, rollup, grouping sets, unpivot")
def _expand(graph: Graph, node: Node, scope: Scope) -> None:
    found: list[list[Value]] = [[] for _ in node.out]
    for projection in node.expressions("projections"):
        for place, one in enumerate(projection):
            found[place].append(scope.value(one))
    graph.define_all(node, [attribute.id for attribute in node.out], [merge(values) for values in found])


@rule("WithCTE", says="the query; definitions count where they are referred to")
def _with(graph: Graph, node: Node, scope: Scope) -> None:
    graph.rows[node.id] = graph.rows[node.kids[-1]]
    graph.over[node.id] = graph.over[node.kids[-1]]


@rule("CTERelationDef", says="columns pass through")
def _definition(graph: Graph, node: Node, scope: Scope) -> None:
    graph.ctes[node.ex["id"]] = node


@rule("CTERelationRef", says="by position, the columns of the definition")
def _reference(graph: Graph, node: Node, scope: Scope) -> None:
    definition = graph.ctes.get(node.ex["cteId"])
    if definition is None:
        graph.gap(node.simple, f"refers to a CTE ({node.ex['cteId']}) that is not in the plan")
        graph.define_all(node, [attribute.id for attribute in node.out], [NOTHING] * len(node.out))
        return
    graph.define_all(node, [attribute.id for attribute in node.out], graph.inputs(definition)[0])
    graph.chooses(node, graph.rows[definition.id])


@rule("UnionLoopRef", says="by position, the columns of the recursion so far")
def _loop_reference(graph: Graph, node: Node, scope: Scope) -> None:
    loop = node.ex["loopId"]
    known = graph.loops.setdefault(loop, [])
    if node not in known:
        known.append(node)
    for attribute in node.out:
        graph.env.setdefault(attribute.id, NOTHING)
    graph.chooses(node, graph.loop_rows.get(loop, Edges({})))


@rule("UnionLoop", says="a recursive CTE: anchor and recursion by position, repeated until nothing is added")
def _loop(graph: Graph, node: Node, scope: Scope) -> None:
    loop = node.ex["id"]
    anchor = graph.inputs(node)[0]
    values: Sequence[Value] = anchor
    rows = graph.rows[node.id]
    for _ in range(_MOST_ROUNDS):
        for reference in graph.loops.get(loop, []):
            for attribute, value in zip(reference.out, values, strict=False):
                graph.env[attribute.id] = value
        graph.loop_rows[loop] = rows
        for again in graph.plan.nodes[node.kids[0] + 1 : node.id]:
            graph.visit(again)
        new = [
            Plain(union(*(value.edges for value in column)))
            if any(value.edges for value in column)
            else NOTHING
            for column in zip(anchor, graph.inputs(node)[1], strict=False)
        ]
        new_rows = union(rows, *(graph.rows[kid] for kid in node.kids))
        if new_rows == rows and all(a.edges == b.edges for a, b in zip(new, values, strict=True)):
            break
        values, rows = new, new_rows
    else:
        graph.gap(node.simple, f"still grew after {_MOST_ROUNDS} rounds")
    graph.define_all(node, [attribute.id for attribute in node.out], values)
    graph.rows[node.id] = rows


@rule(
    "Generate",
    says="explode, posexplode, inline, stack, json_tuple, variant_explode by part; a UDTF from all "
    "arguments; what decides how many rows there are is JOIN",
)
def _generate(graph: Graph, node: Node, scope: Scope) -> None:
    made = graph.made(node)
    for generator in node.expressions("generator"):
        while generator[0] == "f" and generator[1] == "GeneratorOuter":
            generator = generator[2][0]
        values, fixed = _generated(graph, scope, generator, len(made))
        graph.define_all(node, made, values)
        if not fixed:
            graph.chooses(node, union(*(scope.edges(kid) for kid in generator[2])).step(JOIN))


def _generated(graph: Graph, scope: Scope, generator: Expression, width: int) -> tuple[list[Value], bool]:
    """The values of a generator's columns, and whether it always gives the same number of rows."""
    cls, kids = generator[1], generator[2]
    extra = generator[3] if len(generator) > 3 else None
    if cls == "Stack":
        columns = [merge([scope.value(kid) for kid in kids[1 + place :: width]]) for place in range(width)]
        return columns, True
    first = scope.value(kids[0]) if kids else NOTHING
    place = Plain(first.edges.step(TRANSFORMATION))
    if cls == "JsonTuple":
        names = [str(kid[1]) if kid[0] == "l" and len(kid) > 1 else None for kid in kids[1:]]
        return [json_at(graph.sources, first, [name]) if name is not None else place for name in names], True
    if cls in ("Explode", "PosExplode"):
        parts = [ELEMENT] if width - (cls == "PosExplode") == 1 else [KEY, VALUE]
        return [*([place] if cls == "PosExplode" else []), *(first.part(part) for part in parts)], False
    if cls == "Inline" and isinstance(extra, list):
        element = first.part(ELEMENT)
        return [element.part(name) for name in extra], False
    if cls == "VariantExplode" and width == 3:
        return [place, place, json_at(graph.sources, first).part(ELEMENT)], False
    whole = union(*(scope.edges(kid) for kid in kids))
    step = TRANSFORMATION if cls in EXPRESSIONS or not cls.endswith("UDTF") else opaque(str(extra or cls))
    return [stepped(Plain(whole), step if whole else IDENTITY)] * width, False
