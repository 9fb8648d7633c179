"""The views of the graph around a dataset or job, with a traced column, and of search results."""

from __future__ import annotations

from typing import Any

from headwater.graph.query.answers import Neighbourhood, Trace
from headwater.graph.query.query import GraphQuery
from headwater.page.lineage_graph.drawing import Drawing, draw
from headwater.page.lineage_graph.level_of_detail import Scene, collapse
from headwater.page.lineage_graph.request import GraphRequest
from headwater.page.lineage_graph.trace_tree import trace_tree
from headwater.page.views.view import Parameters, View

MAX_NODES = 1_000  # datasets, and jobs, that boxes and stacks stand for
MAX_LISTED = 250  # of a stack
TRACE_DEPTH = 20
TRACE_COLUMNS = 2_000


def lineage_view(query: GraphQuery, parameters: Parameters) -> View:
    """The graph around a dataset or job, with the trace of a column if the request names one."""
    request = GraphRequest.read(parameters)
    scene, drawing, trace = drawing_of(query, request)
    stack = next((stack for stack in scene.stacks if stack.id == request.stack), None)
    members = sorted(stack.members, key=lambda node: node.last_at or "", reverse=True) if stack else []
    values: dict[str, Any] = request._asdict() | {
        "request": request,
        "around": request.around,
        "here": request.here,
        "drawing": drawing,
        "trace": trace,
        "tree": trace_tree(trace) if trace else None,
        "stack": stack,
        "members": members[:MAX_LISTED],
    }
    title = f"{request.column} of {request.of[1]}" if request.column else request.name
    return View("lineage.html", title, "lineage", values)


def drawing_of(query: GraphQuery, request: GraphRequest) -> tuple[Scene, Drawing, Trace | None]:
    """The boxes of a request, their drawing, and the trace; the list of a stack changes none of them."""
    request = request._replace(stack="")
    return query.cached(("drawing", request), lambda: _drawing_of(query, request))


def _drawing_of(query: GraphQuery, request: GraphRequest) -> tuple[Scene, Drawing, Trace | None]:
    trace = None
    if request.column:
        trace = query.trace(*request.of, request.column, depth=TRACE_DEPTH, limit=TRACE_COLUMNS)
    found = _neighbourhood(query, request)
    scene = collapse(found, trace, request, query.work)
    opened = {key for key in scene.datasets if key in request.opened or "all" in request.opened}
    in_trace = {node.dataset for node in trace.columns} if trace else set()
    details = query.drawing_details(scene.datasets, opened, opened | in_trace)
    drawing = draw(scene, details, request, found.start, trace, query.work)
    nearest_are_missing = found.truncated and all(
        abs(node.distance) <= request.depth for node in found.datasets
    )
    left_out = found.omitted.sentence(datasets=len(found.datasets)) if nearest_are_missing else ""
    texts = [text for text in (left_out, drawing.left_out) if text]
    return scene, drawing._replace(left_out=", ".join(texts)), trace


def _neighbourhood(query: GraphQuery, request: GraphRequest) -> Neighbourhood:
    """The nodes one step beyond the depth, and those around the expanded boxes."""
    found = query.neighbourhood(
        request.namespace,
        request.name,
        kind=request.kind,
        direction=request.direction,
        depth=request.depth + 1,
        limit=MAX_NODES,
        all_jobs=request.with_jobs,
    )
    datasets = {node.key: node for node in found.datasets}
    jobs = {node.key: node for node in found.jobs}
    edges = dict.fromkeys(found.edges)
    for key in request.expanded:
        if (node := datasets.get(key)) is None:
            continue
        beyond = query.neighbourhood(
            node.namespace, node.name, depth=2, limit=MAX_NODES, all_jobs=request.with_jobs
        )
        for other in beyond.datasets:
            datasets.setdefault(other.key, other)
        jobs |= {job.key: job for job in beyond.jobs}
        edges |= dict.fromkeys(beyond.edges)
    found.datasets, found.jobs, found.edges = [*datasets.values()], [*jobs.values()], [*edges]
    return found


def search_view(query: GraphQuery, parameters: Parameters) -> View:
    """Datasets, jobs and columns whose names contain the words; without words, the recently updated ones."""
    text = parameters.get("q", "")
    results = query.search(text, limit=parameters.number("limit", 50, 200))
    title = f"Search: {text}" if text else "Recently updated"
    return View("search.html", title, "lineage", {"results": results, "text": text})
