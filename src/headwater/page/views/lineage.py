"""The views of the graph around a dataset or job, with a traced column, and of search results."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal, NamedTuple

from headwater.graph.query.answers import ColumnEdge, DatasetNode, JobNode, LineageDirection, Trace
from headwater.graph.query.query import GraphQuery
from headwater.page.lineage_graph.drawing import draw
from headwater.page.views.view import Parameters, View

MAX_DEPTH = 5
MAX_DATASETS = 300
TRACE_DEPTH = 20
TRACE_COLUMNS = 2_000


class GraphRequest(NamedTuple):
    """Centre, direction, depth and traced column of a graph; `column` may be one of another dataset, `of`."""

    kind: Literal["dataset", "job"]
    namespace: str
    name: str
    direction: LineageDirection
    depth: int
    column: str | None
    of: tuple[str, str]

    @classmethod
    def read(cls, parameters: Parameters) -> GraphRequest:
        """The request that the parameters of an address describe."""
        namespace, name = parameters.get("namespace"), parameters.get("name")
        kind: Literal["dataset", "job"] = parameters.choice("kind", "dataset", "job")
        direction: LineageDirection = parameters.choice("direction", "both", "up", "down")
        return cls(
            kind,
            namespace,
            name,
            direction,
            max(1, min(MAX_DEPTH, parameters.number("depth", 3, 1_000))),
            parameters.get("column", "") or None,
            (parameters.get("of_namespace", namespace), parameters.get("of_name", name)),
        )

    @property
    def around(self) -> dict[str, str | None]:
        """The parameters of the address of the graph, without the column."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "kind": None if self.kind == "dataset" else self.kind,
            "direction": None if self.direction == "both" else self.direction,
            "depth": str(self.depth),
        }


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
    return View(
        "lineage.html", title, "lineage", values | {"drawing": draw(found, values["trace"], query.work)}
    )


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


def search_view(query: GraphQuery, parameters: Parameters) -> View:
    """Datasets, jobs and columns whose names contain the words; without words, the recently updated ones."""
    text = parameters.get("q", "")
    results = query.search(text, limit=parameters.number("limit", 50, 200))
    title = f"Search: {text}" if text else "Recently updated"
    return View("search.html", title, "lineage", {"results": results, "text": text})
