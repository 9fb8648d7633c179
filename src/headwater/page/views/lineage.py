"""The view of the graph around a dataset or job, and of a traced column."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from headwater.graph.query.answers import ColumnEdge, DatasetNode, JobNode, Trace
from headwater.graph.query.query import GraphQuery
from headwater.page.lineage_graph.drawing import draw
from headwater.page.lineage_graph.request import GraphRequest
from headwater.page.parameters import Parameters
from headwater.page.views.view import View

MAX_DATASETS = 300
TRACE_DEPTH = 20
TRACE_COLUMNS = 2_000


def lineage_view(query: GraphQuery, parameters: Parameters) -> View:
    """The graph around a dataset or job, with the trace of a column if the request names one."""
    request = GraphRequest.read(parameters)
    found = query.neighbourhood(
        request.namespace,
        request.name,
        kind=request.kind,
        direction=request.direction,
        depth=request.depth,
        limit=MAX_DATASETS,
        columns=True,
    )
    values = trace_values(query, parameters)
    title = f"{request.column} of {request.of[1]}" if request.column else request.name
    return View("lineage.html", title, "lineage", values | {"drawing": draw(found, values["trace"])})


def trace_values(query: GraphQuery, parameters: Parameters) -> dict[str, Any]:
    """The request, and the trace of its column for the panel beside the graph."""
    request = GraphRequest.read(parameters)
    trace = (
        query.trace(*request.of, request.column, depth=TRACE_DEPTH, limit=TRACE_COLUMNS)
        if request.column
        else None
    )
    columns = _traced_columns(trace) if trace else None
    return request._asdict() | {"around": request.around, "trace": trace, "traced_columns": columns}


class TracedColumn(NamedTuple):
    """A column of a trace, and how it is related to the traced one."""

    node: DatasetNode
    column: str | None
    distance: int
    kinds: list[str]
    is_direct: bool
    masked: bool
    jobs: list[JobNode]


def _traced_columns(trace: Trace) -> dict[str, list[TracedColumn]]:
    """The columns upstream (`up`) and downstream (`down`), nearest first, direct before indirect."""
    nodes = {node.key: node for node in trace.datasets}
    jobs = {job.key: job for job in trace.jobs}
    edges_of: dict[tuple[str, str | None], list[ColumnEdge]] = defaultdict(list)
    distances = {(node.dataset, node.column): node.distance for node in trace.columns}
    for edge in trace.column_edges:
        source, target = (edge.source, edge.source_column), (edge.target, edge.target_column)
        if distances.get(target, 0) <= 0:
            edges_of[source].append(edge)
        if distances.get(source, 0) >= 0:
            edges_of[target].append(edge)
    found: dict[str, list[TracedColumn]] = {"up": [], "down": []}
    for node in trace.columns:
        if node.distance and node.dataset in nodes:
            edges = edges_of[(node.dataset, node.column)]
            kinds = dict.fromkeys((edge.subtype or edge.type).lower().replace("_", " ") for edge in edges)
            made_by = {edge.job: jobs[edge.job] for edge in edges if edge.job in jobs}
            found["up" if node.distance < 0 else "down"].append(
                TracedColumn(
                    nodes[node.dataset],
                    node.column,
                    abs(node.distance),
                    list(kinds),
                    any(edge.type == "DIRECT" for edge in edges),
                    any(edge.masking for edge in edges),
                    list(made_by.values()),
                )
            )
    for columns in found.values():
        columns.sort(key=lambda column: (column.distance, not column.is_direct))
    return found
