"""Rules for leaves: columns of datasets, constants, and rows that an earlier query of the program made."""

from __future__ import annotations

from headwater.lineage.columns.edges import EMPTY, Edges, union
from headwater.lineage.columns.expressions import Scope
from headwater.lineage.columns.graph import Graph, rule
from headwater.lineage.columns.memory import Edge
from headwater.lineage.columns.values import NOTHING, Plain, Source
from headwater.lineage.plan import Node

__all__: list[str] = []


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
