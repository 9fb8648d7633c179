"""Rules for nodes that match columns by position: set operations, CTEs, recursion, Expand, generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.lineage.columns.column_history import Edge
from headwater.lineage.columns.edges import (
    CONDITIONAL,
    EMPTY,
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    SORT,
    TRANSFORMATION,
    Edges,
    opaque,
    union,
    unknown,
    unknown_rows,
)
from headwater.lineage.columns.expressions import EXPRESSIONS, Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.values import (
    ELEMENT,
    KEY,
    NOTHING,
    VALUE,
    Plain,
    Source,
    Value,
    choice,
    json_at,
    merge,
    stepped,
)
from headwater.lineage.jvm.plan import Expression, Node

__all__: list[str] = []


@rule(
    "*",
    says="a node without a rule: what it makes comes from all of its inputs, marked UNKNOWN with its class",
)
def _unknown(graph: Graph, node: Node, scope: Scope) -> None:
    if not node.out:
        return  # a command, or something else that has no columns
    if not node.kids and not node.inner and (datasets := graph.datasets(node)):
        graph.read(node, datasets)  # whatever it is, these are columns of a dataset
        return
    graph.gap(node.simple, f"no rule for {node.cls}")
    whole = union(*(value.edges for values in graph.inputs(node) for value in values))
    made = Plain(whole.step(unknown(node.simple)))
    graph.define_all(node, graph.made(node), [made] * len(node.out))
    used = union(*(scope.edges(one) for one in node.all_expressions()))
    graph.chooses(node, used.step(unknown_rows(node.simple)))


@rule(
    "SubqueryAlias",
    "View",
    "GlobalLimit",
    "LocalLimit",
    "LimitAll",
    "Offset",
    "Tail",
    "Sample",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
    "UnresolvedHint",
    "CollectMetrics",
    "EventTimeWatermark",
    "UpdateEventTimeWatermarkColumn",
    "ReturnAnswer",
    "Again",
    "Subquery",
    "SQLFunctionNode",
    "LogicalQueryStage",
    "SupervisingCommand",
    "WriteToMicroBatchDataSource",
    "WriteToMicroBatchDataSourceV1",
    "WriteToContinuousDataSource",
    "WriteToStream",
    "WriteFiles",
    says="columns pass through",
)
def _same(graph: Graph, node: Node, scope: Scope) -> None:
    pass


@rule("Project", says="each column by its expression")
def _project(graph: Graph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("projectList"), scope)


@rule("Window", says="each window function by its expression; no effect on rows")
def _window(graph: Graph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("windowExpressions"), scope)


@rule("Aggregate", says="each column by its expression; GROUP BY chooses the rows")
def _aggregate(graph: Graph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("aggregateExpressions"), scope)
    graph.chooses(node, scope.used(node.expressions("groupingExpressions"), GROUP_BY))


def _aliases(expressions: list[Expression], scope: Scope) -> None:
    for one in expressions:
        scope.value(one)  # an alias defines its own id


@rule(
    "Filter",
    says="FILTER; an equation between columns of different inputs is JOIN (comma joins, correlation)",
)
def _filter(graph: Graph, node: Node, scope: Scope) -> None:
    for one in _conjuncts(node.expressions("condition")):
        edges = scope.edges(one)
        graph.chooses(node, edges.step(JOIN if _joins(graph, scope, one) else FILTER))


def _conjuncts(expressions: list[Expression]) -> Iterator[Expression]:
    todo = list(expressions)
    while todo:
        one = todo.pop()
        if one[0] == "f" and one[1] == "And":
            todo += one[2]
        else:
            yield one


def _joins(graph: Graph, scope: Scope, one: Expression) -> bool:
    if one[0] != "f" or one[1] not in ("EqualTo", "EqualNullSafe") or len(one[2]) != 2:
        return False
    left, right = (graph.sources.leaves(scope.edges(side)) for side in one[2])
    return bool(left and right and not left & right)


@rule("TypedFilter", says="FILTER by everything: the user's own code chooses")
def _typed_filter(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, *(value.edges.step(FILTER) for values in graph.inputs(node) for value in values))


@rule("Join", "AsOfJoin", "NearestByJoin", says="all types; what the condition uses is JOIN")
def _join(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, scope.used(list(node.all_expressions()), JOIN))
    if node.ex.get("joinType", "").startswith("ExistenceJoin"):
        graph.define_all(node, graph.made(node), [Plain(graph.rows[node.id].step(CONDITIONAL))])


@rule(
    "LateralJoin",
    says="columns of both sides; what the condition and the right side use to choose rows is JOIN",
)
def _lateral(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, scope.used(node.expressions("condition"), JOIN))
    for one in node.expressions("right"):
        graph.chooses(node, graph.rows[one[2]])
        inside = graph.over[one[2]]
        if inside:
            graph.over[node.id] = {**(graph.over[node.id] or {}), **inside}


@rule("Sort", says="SORT")
def _sort(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, scope.used(node.expressions("order"), SORT))


@rule("Distinct", says="all columns are GROUP_BY")
def _distinct(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, *(value.edges.step(GROUP_BY) for values in graph.inputs(node) for value in values))


@rule("Deduplicate", "DeduplicateWithinWatermark", says="the keys are GROUP_BY")
def _deduplicate(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, scope.used(node.expressions("keys"), GROUP_BY))


@rule("MergeRows", says="each column from every action's value for it; conditions of actions are CONDITIONAL")
def _merge(graph: Graph, node: Node, scope: Scope) -> None:
    found: list[list[Value]] = [[] for _ in node.out]
    for role in ("matchedInstructions", "notMatchedInstructions", "notMatchedBySourceInstructions"):
        for one in node.expressions(role):
            graph.chooses(node, scope.used(one[2][:1], CONDITIONAL))
            at = 1
            for width in one[3]:
                for place, value in enumerate(one[2][at : at + width]):
                    found[place].append(scope.value(value))
                at += width
    graph.define_all(node, [attribute.id for attribute in node.out], [merge(values) for values in found])


@rule("DeleteFromTable", "UpdateTable", says="the condition is FILTER")
def _delete(graph: Graph, node: Node, scope: Scope) -> None:
    graph.chooses(node, scope.used(node.expressions("condition"), FILTER))


_GROUPS = ("groupingAttributes", "groupingExprs", "leftGroup", "rightGroup")


_LENGTHS = (("leftGroupingLen", "groupingAttributesLen"), ("rightGroupingLen",))


@rule(
    "MapInPandas",
    "MapInArrow",
    "PythonMapInArrow",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "FlatMapCoGroupsInPandas",
    "FlatMapCoGroupsInArrow",
    "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark",
    "TransformWithStateInPandas",
    "TransformWithState",
    "FlatMapGroupsWithState",
    "MapPartitions",
    "MapPartitionsInR",
    "MapPartitionsInRWithArrow",
    "MapPartitionsExternalUDF",
    "FlatMapGroupsInR",
    "FlatMapGroupsInRWithArrow",
    "MapElements",
    "MapGroups",
    "CoGroup",
    "AppendColumns",
    "AppendColumnsWithObject",
    "DeserializeToObject",
    "SerializeFromObject",
    "ScriptTransformation",
    "ArrowEvalPython",
    "BatchEvalPython",
    says="opaque: every new column from every input column, TRANSFORMATION with the remark `opaque`; "
    "grouping columns are GROUP_BY",
)
def _opaque(graph: Graph, node: Node, scope: Scope) -> None:
    whole = union(*(value.edges for values in graph.inputs(node) for value in values))
    # one value for all columns: a thousand outputs of a thousand inputs are one set
    made = Plain(whole.step(opaque(node.simple)))
    graph.define_all(node, graph.made(node), [made] * len(node.out))
    for role in _GROUPS:
        graph.chooses(node, scope.used(node.expressions(role), GROUP_BY))
    for roles, columns in zip(_LENGTHS, graph.inputs(node), strict=False):
        # these have their keys in front of the other columns, and tell how many there are
        grouping = columns[: max(int(node.ex.get(role, 0)) for role in roles)]
        graph.chooses(node, union(*(value.edges for value in grouping)).step(GROUP_BY))


@rule("AttachDistributedSequence", says="a number for each row, of no column")
def _sequence(graph: Graph, node: Node, scope: Scope) -> None:
    graph.define_all(node, graph.made(node), [Plain(union())])


_CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")


@rule(
    "MergeIntoCommand",
    says="Delta's MERGE: the table's own columns and each action's value; the condition is JOIN, those of "
    "the actions are CONDITIONAL",
)
def _delta_merge(graph: Graph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    places = {attribute.name.lower(): place for place, attribute in enumerate(target.out)}
    found: list[list[Value]] = [[value] for value in graph.columns(target.id)]
    graph.chooses(node, scope.used(node.expressions("condition"), JOIN))
    for role in _CLAUSES:
        for clause in node.expressions(role):
            actions = [one for one in clause[2] if _is_action(one)]
            conditions = [one for one in clause[2] if not _is_action(one)]
            graph.chooses(node, scope.used(conditions, CONDITIONAL))
            for action in actions:
                place = places.get(str(action[3]).partition(".")[0].lower()) if len(action) > 3 else None
                if place is None:
                    graph.gap(node.simple, "an action of MERGE without a column of the table")
                else:
                    found[place].append(scope.value(action[2][0]))
    _written(graph, node, target, [merge(values) for values in found])


def _is_action(one: Expression) -> bool:
    return bool(one[0] == "f" and one[1] == "DeltaMergeAction")


@rule("UpdateCommand", says="Delta's UPDATE: the new value or the old one, by the condition")
def _update(graph: Graph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    chosen = scope.used(node.expressions("condition"), CONDITIONAL)
    old = graph.columns(target.id)
    new = [scope.value(one) for one in node.expressions("updateExpressions")]
    values = [
        after if after is before else choice([before, after], chosen)
        for before, after in zip(old, new, strict=True)
    ]
    _written(graph, node, target, values)


@rule("DeleteCommand", says="Delta's DELETE: the table's own columns; the condition is FILTER")
def _delta_delete(graph: Graph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    graph.chooses(node, scope.used(node.expressions("condition"), FILTER))
    _written(graph, node, target, graph.columns(target.id))


def _written(graph: Graph, node: Node, target: Node, values: list[Value]) -> None:
    graph.define_all(node, [attribute.id for attribute in target.out], values)
    for attribute in node.out:  # what the command answers: how many rows it has changed
        graph.env.setdefault(attribute.id, NOTHING)
    graph.told_outputs[node.id] = tuple((attribute.id, attribute.name) for attribute in target.out)


@rule(
    "LogicalRelation",
    "LogicalRelationWithTable",
    "HiveTableRelation",
    "DataSourceV2Relation",
    "DataSourceV2ScanRelation",
    "StreamingRelation",
    "StreamingRelationV2",
    "StreamingExecutionRelation",
    "StreamingDataSourceV2Relation",
    "StreamingDataSourceV2ScanRelation",
    says="columns of the dataset that is read",
)
def _relation(graph: Graph, node: Node, scope: Scope) -> None:
    datasets = graph.datasets(node)
    if not datasets:
        graph.gap(node.simple, f"no dataset is known for {_names(node)}")
    graph.read(node, datasets)


@rule(
    "LocalRelation",
    "Range",
    "OneRowRelation",
    "EmptyRelation",
    "CommandResult",
    "PythonWorkerLogs",
    says="constants: no input",
)
def _constant(graph: Graph, node: Node, scope: Scope) -> None:
    if datasets := graph.datasets(node):
        graph.read(node, datasets)
        return
    graph.define_all(node, [attribute.id for attribute in node.out], [NOTHING] * len(node.out))


@rule(
    "LogicalRDD",
    "ExternalRDD",
    "InMemoryRelation",
    "MemoryPlan",
    says="rows of an earlier query of the application: followed by their expression ids, else marked",
)
def _rows(graph: Graph, node: Node, scope: Scope) -> None:
    if node.id in graph.declared:
        graph.read(node, graph.datasets(node))
        return
    known = {a.id: graph.memory.recall(a.id) for a in node.out} if graph.memory is not None else {}
    found = {number: made for number, made in known.items() if made is not None}
    for number, made in found.items():
        graph.define(node, number, Plain(_recalled(graph, node, made.edges)))
    for rows in {made.rows for made in found.values()}:
        graph.chooses(node, _recalled(graph, node, rows))
    missing = [attribute for attribute in node.out if attribute.id not in found]
    if not missing:
        return
    datasets = graph.datasets(node)
    told = f"rows made by the program's own code{' out of ' if datasets else ''}"
    told += ", ".join(f"{dataset.namespace} {dataset.name}" for dataset in datasets)
    graph.gap(node.simple, f"{told}: {_names(node)}")
    graph.define_all(node, [attribute.id for attribute in missing], [NOTHING] * len(missing))


def _recalled(graph: Graph, node: Node, edges: tuple[Edge, ...]) -> Edges:
    masks: dict[int, int] = {}
    for edge in edges:
        place = graph.sources.place(Source(node.id, edge.datasets, edge.path, edge.pointer))
        masks[edge.kind] = masks.get(edge.kind, 0) | 1 << place
    return union(EMPTY, Edges(masks))


def _names(node: Node) -> str:
    names = [attribute.name for attribute in node.out]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
