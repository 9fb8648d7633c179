"""The endpoints of the graph: /api/v1/graph/…, and those of Marquez.

Most are methods of `GraphQuery`, with the same parameters and description. Names contain colons and
slashes, so they are query parameters, not parts of a path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from headwater.graph.http.query_pool import QueryPool
from headwater.graph.marquez import endpoints as marquez
from headwater.graph.query.answers import Impact, RunSummary, SearchResult
from headwater.graph.query.query import Depth, GraphQuery, Limit, Offset
from headwater.http.auth import AdminToken
from headwater.http.response import Problem
from headwater.http.routing.endpoint import Endpoint, endpoint_of
from headwater.http.routing.router import Router

Kind = Literal["dataset", "job", "column"]


def add_routes(router: Router, pool: QueryPool, admin: AdminToken) -> None:
    """Serve the graph under /api/v1/graph, and in the form of Marquez."""
    for endpoint, function in (*ENDPOINTS, *marquez.ENDPOINTS):
        router.serve(endpoint, pool.handler(endpoint, function), before_body=admin.authorize)


def _search(
    query: GraphQuery,
    q: str = "",
    kind: tuple[Kind, ...] = ("dataset", "job", "column"),
    namespace: str = "",
    limit: Limit = 50,
) -> list[SearchResult]:
    """Datasets, jobs and columns whose names contain all words of a text; without one, the latest."""
    return query.search(q, kinds=kind, namespace=namespace, limit=limit)


def _runs(
    query: GraphQuery, namespace: str = "", job: str = "", limit: Limit = 100, offset: Offset = 0
) -> list[RunSummary]:
    """The runs of a job, or all runs, newest first."""
    if job and not namespace:
        raise Problem(400, "bad_request", "`job` needs a `namespace`.", hint="Add the namespace of the job.")
    return query.runs(namespace, job, limit=limit, offset=offset)


def _impact(
    query: GraphQuery,
    namespace: str,
    name: str,
    column: str = "",
    depth: Depth = 50,
    limit: Limit = 1_000,
) -> Impact:
    """The datasets downstream that a change of a dataset, or of one column, affects."""
    return query.impact(namespace, name, column or None, depth=depth, limit=limit)


def _endpoint(
    name: str, operation_id: str, function: Callable[..., Any], answer: str, *, is_list: bool = False
) -> tuple[Endpoint, Callable[..., Any]]:
    problems = {status: text for status, text in marquez.PROBLEMS.items() if status != 404 or not is_list}
    endpoint = endpoint_of(
        function,
        "GET",
        f"/api/v1/graph/{name}",
        answer=answer,
        operation_id=operation_id,
        problems=problems,
        security=("admin", ""),
        schema_prefix="Graph",  # OpenLineage has a Run and a Job too
    )
    return endpoint, function


ENDPOINTS = (
    _endpoint("summary", "getGraphSummary", GraphQuery.summary, "The counts.", is_list=True),
    _endpoint("search", "searchGraph", _search, "The closest first.", is_list=True),
    _endpoint("namespaces", "listGraphNamespaces", GraphQuery.namespaces, "The largest first.", is_list=True),
    _endpoint("catalogue", "getGraphCatalogue", GraphQuery.catalogue, "A page, with the total."),
    _endpoint("dataset", "getGraphDataset", GraphQuery.dataset, "The dataset."),
    _endpoint("job", "getGraphJob", GraphQuery.job, "The job."),
    _endpoint("run", "getGraphRun", GraphQuery.run, "The run."),
    _endpoint("runs", "listGraphRuns", _runs, "The newest first."),
    _endpoint("statistics", "getGraphStatistics", GraphQuery.statistics, "The newest first."),
    _endpoint("neighbourhood", "getNeighbourhood", GraphQuery.neighbourhood, "Datasets, jobs, and edges."),
    _endpoint("column", "traceColumn", GraphQuery.trace, "Columns, the edges between them, and the gaps."),
    _endpoint("impact", "getImpact", _impact, "Datasets, the nearest first."),
)
