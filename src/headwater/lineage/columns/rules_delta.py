"""Rules for Delta's own commands, which keep what they do to themselves instead of in a plan."""

from __future__ import annotations

from headwater.lineage.columns.edges import CONDITIONAL, FILTER, JOIN
from headwater.lineage.columns.expressions import Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.values import NOTHING, Value, choice, merge
from headwater.lineage.plan import Expression, Node

__all__: list[str] = []

_CLAUSES = ("matchedClauses", "notMatchedClauses", "notMatchedBySourceClauses")


@rule(
    "MergeIntoCommand",
    says="Delta's MERGE: the table's own columns and each action's value; the condition is JOIN, those of "
    "the actions are CONDITIONAL",
)
def _merge(graph: Graph, node: Node, scope: Scope) -> None:
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
def _delete(graph: Graph, node: Node, scope: Scope) -> None:
    target = graph.plan.nodes[node.inner[-1]]
    graph.chooses(node, scope.used(node.expressions("condition"), FILTER))
    _written(graph, node, target, graph.columns(target.id))


def _written(graph: Graph, node: Node, target: Node, values: list[Value]) -> None:
    graph.define_all(node, [attribute.id for attribute in target.out], values)
    for attribute in node.out:  # what the command answers: how many rows it has changed
        graph.env.setdefault(attribute.id, NOTHING)
    graph.told_outputs[node.id] = tuple((attribute.id, attribute.name) for attribute in target.out)
