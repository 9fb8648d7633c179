"""Rules for plan nodes: relational operators, leaves, set operations, CTEs, generators, user code, Delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.lineage.columns.column_graph import EXPRESSION_RULES, ColumnGraph, Scope, rule
from headwater.lineage.columns.edge_sets import (
    CONDITIONAL,
    EMPTY,
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    SORT,
    TRANSFORMATION,
    Edges,
    union,
    unknown,
    unknown_row_filter,
    user_code,
)
from headwater.lineage.columns.values import (
    ELEMENT,
    KEY,
    NO_INPUT,
    VALUE,
    ScalarValue,
    Source,
    Value,
    any_of,
    json_at,
    one_of,
    transformed,
)
from headwater.lineage.datasets.query_history import Edge
from headwater.lineage.jvm.plan import Expression, Node


@rule(
    "*",
    says="a node without a rule: new columns come from all of its inputs, marked UNKNOWN with its class",
)
def _unknown(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    if not node.out:
        return  # a command, or another node without columns
    if not node.kids and not node.inner and (datasets := graph.datasets(node)):
        graph.read(node, datasets)  # an unknown leaf with known datasets
        return
    graph.gap(node.simple, f"no rule for {node.cls}")
    whole = union(*(value.edges for values in graph.inputs(node) for value in values))
    made = ScalarValue(whole.then(unknown(node.simple)))
    graph.set_values(node, graph.new_ids(node), [made] * len(node.out))
    used = union(*(scope.edges(one) for one in node.all_expressions()))
    graph.filters_rows(node, used.then(unknown_row_filter(node.simple)))


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
    "SameNode",
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
def _same(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    pass


@rule("Project", says="each column by its expression")
def _project(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("projectList"), scope)


@rule("Window", says="each window function by its expression; no effect on rows")
def _window(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("windowExpressions"), scope)


@rule("Aggregate", says="each column by its expression; GROUP BY chooses the rows")
def _aggregate(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    _aliases(node.expressions("aggregateExpressions"), scope)
    graph.filters_rows(node, scope.used(node.expressions("groupingExpressions"), GROUP_BY))


def _aliases(expressions: list[Expression], scope: Scope) -> None:
    for one in expressions:
        scope.value(one)  # an alias sets the value of its id


@rule(
    "Filter",
    says="FILTER; an equation between columns of different inputs is JOIN (comma joins, correlation)",
)
def _filter(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    for one in _conjuncts(node.expressions("condition")):
        edges = scope.edges(one)
        graph.filters_rows(node, edges.then(JOIN if _joins(graph, scope, one) else FILTER))


def _conjuncts(expressions: list[Expression]) -> Iterator[Expression]:
    todo = list(expressions)
    while todo:
        one = todo.pop()
        if one[0] == "f" and one[1] == "And":
            todo += one[2]
        else:
            yield one


def _joins(graph: ColumnGraph, scope: Scope, one: Expression) -> bool:
    if one[0] != "f" or one[1] not in ("EqualTo", "EqualNullSafe") or len(one[2]) != 2:
        return False
    left, right = (graph.sources.leaves(scope.edges(side)) for side in one[2])
    return bool(left and right and not left & right)


@rule("TypedFilter", says="all columns are FILTER: user code decides")
def _typed_filter(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, *(value.edges.then(FILTER) for values in graph.inputs(node) for value in values))


@rule("Join", "AsOfJoin", "NearestByJoin", says="all types; columns of the condition are JOIN")
def _join(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, scope.used(list(node.all_expressions()), JOIN))
    if node.ex.get("joinType", "").startswith("ExistenceJoin"):
        graph.set_values(node, graph.new_ids(node), [ScalarValue(graph.row_edges[node.id].then(CONDITIONAL))])


@rule(
    "LateralJoin",
    says="columns of both sides; columns of the condition, and row filters of the right side, are JOIN",
)
def _lateral(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, scope.used(node.expressions("condition"), JOIN))
    for one in node.expressions("right"):
        graph.filters_rows(node, graph.row_edges[one[2]])
        inside = graph.overrides[one[2]]
        if inside:
            graph.overrides[node.id] = {**(graph.overrides[node.id] or {}), **inside}


@rule("Sort", says="SORT")
def _sort(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, scope.used(node.expressions("order"), SORT))


@rule("Distinct", says="all columns are GROUP_BY")
def _distinct(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(
        node, *(value.edges.then(GROUP_BY) for values in graph.inputs(node) for value in values)
    )


@rule("Deduplicate", "DeduplicateWithinWatermark", says="the keys are GROUP_BY")
def _deduplicate(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, scope.used(node.expressions("keys"), GROUP_BY))


@rule("MergeRows", says="each column from every action's value for it; conditions of actions are CONDITIONAL")
def _merge(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    found: list[list[Value]] = [[] for _ in node.out]
    for role in ("matchedInstructions", "notMatchedInstructions", "notMatchedBySourceInstructions"):
        for one in node.expressions(role):
            graph.filters_rows(node, scope.used(one[2][:1], CONDITIONAL))
            at = 1
            for width in one[3]:
                for place, value in enumerate(one[2][at : at + width]):
                    found[place].append(scope.value(value))
                at += width
    graph.set_values(node, [attribute.id for attribute in node.out], [any_of(values) for values in found])


@rule("DeleteFromTable", "UpdateTable", says="the condition is FILTER")
def _delete(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, scope.used(node.expressions("condition"), FILTER))


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
def _opaque(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    if node.id in graph.declared:
        graph.read(node, graph.datasets(node))
        return
    if graph.declared and [kid.simple for kid in graph.plan.children(node)] == ["Range"]:
        graph.gap(node.simple, f"rows made by the program's own code: {_names(node)}")
    whole = union(*(value.edges for values in graph.inputs(node) for value in values))
    # one value for all columns: a thousand outputs of a thousand inputs share one set
    made = ScalarValue(whole.then(user_code(node.simple)))
    graph.set_values(node, graph.new_ids(node), [made] * len(node.out))
    for role in _GROUPS:
        graph.filters_rows(node, scope.used(node.expressions(role), GROUP_BY))
    for roles, columns in zip(_LENGTHS, graph.inputs(node), strict=False):
        # these nodes have their keys before the other columns, and the number of keys in a field
        grouping = columns[: max(int(node.ex.get(role, 0)) for role in roles)]
        graph.filters_rows(node, union(*(value.edges for value in grouping)).then(GROUP_BY))


@rule("AttachDistributedSequence", says="a number for each row, without inputs")
def _sequence(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.set_values(node, graph.new_ids(node), [ScalarValue(union())])


_CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")


@rule(
    "MergeIntoCommand",
    says="Delta's MERGE: the table's own columns and each action's value; the condition is JOIN, those of "
    "the actions are CONDITIONAL",
)
def _delta_merge(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    places = {attribute.name.lower(): place for place, attribute in enumerate(target.out)}
    found: list[list[Value]] = [[value] for value in graph.columns(target.id)]
    graph.filters_rows(node, scope.used(node.expressions("condition"), JOIN))
    for role in _CLAUSES:
        for clause in node.expressions(role):
            actions = [one for one in clause[2] if _is_action(one)]
            conditions = [one for one in clause[2] if not _is_action(one)]
            graph.filters_rows(node, scope.used(conditions, CONDITIONAL))
            for action in actions:
                place = places.get(str(action[3]).partition(".")[0].lower()) if len(action) > 3 else None
                if place is None:
                    graph.gap(node.simple, "an action of MERGE without a column of the table")
                else:
                    found[place].append(scope.value(action[2][0]))
    _written(graph, node, target, [any_of(values) for values in found])


def _is_action(one: Expression) -> bool:
    return bool(one[0] == "f" and one[1] == "DeltaMergeAction")


@rule("UpdateCommand", says="Delta's UPDATE: the new value or the old one, by the condition")
def _update(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    chosen = scope.used(node.expressions("condition"), CONDITIONAL)
    old = graph.columns(target.id)
    new = [scope.value(one) for one in node.expressions("updateExpressions")]
    values = [
        after if after is before else one_of([before, after], chosen)
        for before, after in zip(old, new, strict=True)
    ]
    _written(graph, node, target, values)


@rule("DeleteCommand", says="Delta's DELETE: the table's own columns; the condition is FILTER")
def _delta_delete(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    graph.filters_rows(node, scope.used(node.expressions("condition"), FILTER))
    _written(graph, node, target, graph.columns(target.id))


def _written(graph: ColumnGraph, node: Node, target: Node, values: list[Value]) -> None:
    graph.set_values(node, [attribute.id for attribute in target.out], values)
    for attribute in node.out:  # the command's result: the number of changed rows
        graph.values.setdefault(attribute.id, NO_INPUT)
    graph.written[node.id] = tuple((attribute.id, attribute.name) for attribute in target.out)


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
    says="columns of the dataset",
)
def _relation(graph: ColumnGraph, node: Node, scope: Scope) -> None:
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
def _constant(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    if datasets := graph.datasets(node):
        graph.read(node, datasets)
        return
    graph.set_values(node, [attribute.id for attribute in node.out], [NO_INPUT] * len(node.out))


@rule(
    "LogicalRDD",
    "ExternalRDD",
    "InMemoryRelation",
    "MemoryPlan",
    says="rows of an earlier query: followed by their expression ids, else listed in `unknown`",
)
def _rows(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    if node.id in graph.declared:
        graph.read(node, graph.datasets(node))
        return
    known = {a.id: graph.history.find_column(a.id) for a in node.out} if graph.history is not None else {}
    found = {number: made for number, made in known.items() if made is not None}
    for number, made in found.items():
        graph.set_value(node, number, ScalarValue(_recorded(graph, node, made.edges)))
    for rows in {made.rows for made in found.values()}:
        graph.filters_rows(node, _recorded(graph, node, rows))
    missing = [attribute for attribute in node.out if attribute.id not in found]
    if not missing:
        return
    datasets = graph.datasets(node)
    reason = f"rows made by the program's own code{' out of ' if datasets else ''}"
    reason += ", ".join(f"{dataset.namespace} {dataset.name}" for dataset in datasets)
    graph.gap(node.simple, f"{reason}: {_names(node)}")
    graph.set_values(node, [attribute.id for attribute in missing], [NO_INPUT] * len(missing))


def _recorded(graph: ColumnGraph, node: Node, edges: tuple[Edge, ...]) -> Edges:
    masks: dict[int, int] = {}
    for edge in edges:
        place = graph.sources.place(Source(node.id, edge.datasets, edge.path, edge.pointer))
        masks[edge.kind] = masks.get(edge.kind, 0) | 1 << place
    return union(EMPTY, Edges(masks))


def _names(node: Node) -> str:
    names = [attribute.name for attribute in node.out]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Each round adds inputs to columns; this many rounds carry a value through every column of a wide recursion.
_MAX_ROUNDS = 64


@rule(
    "Union",
    "SequentialStreamingUnion",
    says="by position, every branch (by name: Spark has put them in order)",
)
def _union(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    branches = graph.inputs(node)
    values = [any_of(column) for column in zip(*branches, strict=False)]
    graph.set_values(node, [attribute.id for attribute in node.out], values)


@rule("Intersect", "Except", says="values of the left side; all columns of both sides are FILTER")
def _intersect(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.filters_rows(node, *(value.edges.then(FILTER) for values in graph.inputs(node) for value in values))


@rule("Expand", says="by position, every projection: cube, rollup, grouping sets, unpivot")
def _expand(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    found: list[list[Value]] = [[] for _ in node.out]
    for projection in node.expressions("projections"):
        for place, one in enumerate(projection):
            found[place].append(scope.value(one))
    graph.set_values(node, [attribute.id for attribute in node.out], [any_of(values) for values in found])


@rule("WithCTE", says="the query; a definition counts at its references")
def _with(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.row_edges[node.id] = graph.row_edges[node.kids[-1]]
    graph.overrides[node.id] = graph.overrides[node.kids[-1]]


@rule("CTERelationDef", says="columns pass through")
def _definition(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    graph.ctes[node.ex["id"]] = node


@rule("CTERelationRef", says="by position, the columns of the definition")
def _reference(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    definition = graph.ctes.get(node.ex["cteId"])
    if definition is None:
        graph.gap(node.simple, f"refers to a CTE ({node.ex['cteId']}) that is not in the plan")
        graph.set_values(node, [attribute.id for attribute in node.out], [NO_INPUT] * len(node.out))
        return
    graph.set_values(node, [attribute.id for attribute in node.out], graph.inputs(definition)[0])
    graph.filters_rows(node, graph.row_edges[definition.id])


@rule("UnionLoopRef", says="by position, the current columns of the recursion")
def _loop_reference(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    loop = node.ex["loopId"]
    known = graph.loops.setdefault(loop, [])
    if node not in known:
        known.append(node)
    for attribute in node.out:
        graph.values.setdefault(attribute.id, NO_INPUT)
    graph.filters_rows(node, graph.loop_rows.get(loop, Edges({})))


@rule("UnionLoop", says="a recursive CTE: anchor and recursion by position, repeated until nothing is added")
def _loop(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    loop = node.ex["id"]
    anchor = graph.inputs(node)[0]
    values: Sequence[Value] = anchor
    rows = graph.row_edges[node.id]
    for _ in range(_MAX_ROUNDS):
        for reference in graph.loops.get(loop, []):
            for attribute, value in zip(reference.out, values, strict=False):
                graph.values[attribute.id] = value
        graph.loop_rows[loop] = rows
        for again in graph.plan.nodes[node.kids[0] + 1 : node.id]:
            graph.visit(again)
        new = [
            ScalarValue(union(*(value.edges for value in column)))
            if any(value.edges for value in column)
            else NO_INPUT
            for column in zip(anchor, graph.inputs(node)[1], strict=False)
        ]
        new_rows = union(rows, *(graph.row_edges[kid] for kid in node.kids))
        if new_rows == rows and all(a.edges == b.edges for a, b in zip(new, values, strict=True)):
            break
        values, rows = new, new_rows
    else:
        graph.gap(node.simple, f"still grew after {_MAX_ROUNDS} rounds")
    graph.set_values(node, [attribute.id for attribute in node.out], values)
    graph.row_edges[node.id] = rows


@rule(
    "Generate",
    says="explode, posexplode, inline, stack, json_tuple, variant_explode by part; a UDTF from all "
    "arguments; columns that decide the number of rows are JOIN",
)
def _generate(graph: ColumnGraph, node: Node, scope: Scope) -> None:
    made = graph.new_ids(node)
    for generator in node.expressions("generator"):
        while generator[0] == "f" and generator[1] == "GeneratorOuter":
            generator = generator[2][0]
        values, fixed = _generated(graph, scope, generator, len(made))
        graph.set_values(node, made, values)
        if not fixed:
            graph.filters_rows(node, union(*(scope.edges(kid) for kid in generator[2])).then(JOIN))


def _generated(
    graph: ColumnGraph, scope: Scope, generator: Expression, width: int
) -> tuple[list[Value], bool]:
    """The values of a generator's columns, and whether its number of rows is fixed."""
    cls, kids = generator[1], generator[2]
    extra = generator[3] if len(generator) > 3 else None
    if cls == "Stack":
        columns = [any_of([scope.value(kid) for kid in kids[1 + place :: width]]) for place in range(width)]
        return columns, True
    first = scope.value(kids[0]) if kids else NO_INPUT
    place = ScalarValue(first.edges.then(TRANSFORMATION))
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
    step = (
        TRANSFORMATION
        if cls in EXPRESSION_RULES or not cls.endswith("UDTF")
        else user_code(str(extra or cls))
    )
    return [transformed(ScalarValue(whole), step if whole else IDENTITY)] * width, False
