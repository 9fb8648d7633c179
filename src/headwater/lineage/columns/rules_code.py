"""Rules for nodes that run the user's own code over rows: every output may come from every input."""

from __future__ import annotations

from headwater.lineage.columns.edges import GROUP_BY, opaque, union
from headwater.lineage.columns.expressions import Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.values import Plain
from headwater.lineage.plan import Node

__all__: list[str] = []

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
