"""Rules for the relational nodes: what each makes of its children's columns, and what chooses its rows."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.lineage.columns.edges import (
    CONDITIONAL,
    FILTER,
    GROUP_BY,
    JOIN,
    SORT,
    union,
    unknown,
    unknown_rows,
)
from headwater.lineage.columns.expressions import Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.values import Plain, Value, merge
from headwater.lineage.plan import Expression, Node

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
