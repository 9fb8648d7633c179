"""The endpoints of the graph: /api/v1/graph/…, and those of Marquez.

Names contain colons and slashes, so they are query parameters, not parts of a path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from headwater.graph.http.query_pool import QueryPool
from headwater.graph.marquez import endpoints as marquez
from headwater.graph.query.answers import (
    Dataset,
    Impact,
    Job,
    LineageDirection,
    Neighbourhood,
    Run,
    RunSummary,
    SearchResult,
    Statistic,
    Summary,
    Trace,
)
from headwater.graph.query.query import MAX_DEPTH, MAX_LIMIT, GraphQuery
from headwater.http.auth import AdminToken
from headwater.http.endpoint import Endpoint, endpoint_of
from headwater.http.response import Problem
from headwater.http.router import Router

Limit = Annotated[int, Meta(ge=0, le=MAX_LIMIT)]
Offset = Annotated[int, Meta(ge=0, le=100_000_000)]
Depth = Annotated[int, Meta(ge=0, le=MAX_DEPTH)]
Kind = Literal["dataset", "job", "column"]


def add_routes(router: Router, pool: QueryPool, admin: AdminToken) -> None:
    """Serve the graph, in our form and in that of Marquez."""
    for endpoint, function in (*ENDPOINTS, *marquez.ENDPOINTS):
        router.serve(endpoint, pool.handler(endpoint, function), before_body=admin.authorize)


def _summary(query: GraphQuery) -> Summary:
    """How many nodes the graph has, and its latest event."""
    return query.summary()


def _search(
    query: GraphQuery,
    q: str = "",
    kind: tuple[Kind, ...] = ("dataset", "job", "column"),
    namespace: str = "",
    limit: Limit = 50,
) -> list[SearchResult]:
    """Datasets, jobs and columns whose names contain all words of a text; without one, the latest."""
    return query.search(q, kinds=kind, namespace=namespace, limit=limit)


def _dataset(query: GraphQuery, namespace: str, name: str) -> Dataset:
    """A dataset with its schema versions, jobs, statistics over time, and facets."""
    return query.dataset(namespace, name)


def _job(query: GraphQuery, namespace: str, name: str) -> Job:
    """A job with its inputs, outputs, latest runs, and facets."""
    return query.job(namespace, name)


def _run(query: GraphQuery, id: str) -> Run:
    """A run with its timing, error, inputs, outputs, children, and facets."""
    return query.run(id)


def _runs(
    query: GraphQuery, namespace: str = "", job: str = "", limit: Limit = 100, offset: Offset = 0
) -> list[RunSummary]:
    """The runs of a job, or all runs, newest first."""
    if job and not namespace:
        raise Problem(400, "bad_request", "`job` needs a `namespace`.", hint="Add the namespace of the job.")
    return query.runs(namespace if job else "", job, limit=limit, offset=offset)


def _statistics(query: GraphQuery, namespace: str, name: str, limit: Limit = 200) -> list[Statistic]:
    """Rows, bytes and files that the latest runs reported about a dataset, newest first."""
    return query.statistics(namespace, name, limit=limit)


def _neighbourhood(
    query: GraphQuery,
    namespace: str,
    name: str,
    kind: Literal["dataset", "job"] = "dataset",
    direction: LineageDirection = "both",
    depth: Depth = 2,
    limit: Limit = 300,
    columns: bool = False,
) -> Neighbourhood:
    """Datasets and jobs around one; `columns` adds columns and the edges between them."""
    return query.neighbourhood(
        namespace, name, kind=kind, direction=direction, depth=depth, limit=limit, columns=columns
    )


def _column(
    query: GraphQuery,
    namespace: str,
    name: str,
    column: str,
    direction: LineageDirection = "both",
    depth: Depth = 20,
    indirect: bool = True,
    limit: Limit = 1_000,
) -> Trace:
    """The columns upstream and downstream of a column."""
    return query.trace(
        namespace, name, column, direction=direction, depth=depth, indirect=indirect, limit=limit
    )


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
    _endpoint("summary", "getGraphSummary", _summary, "The counts.", is_list=True),
    _endpoint("search", "searchGraph", _search, "The closest first.", is_list=True),
    _endpoint("dataset", "getGraphDataset", _dataset, "The dataset."),
    _endpoint("job", "getGraphJob", _job, "The job."),
    _endpoint("run", "getGraphRun", _run, "The run."),
    _endpoint("runs", "listGraphRuns", _runs, "The newest first."),
    _endpoint("statistics", "getGraphStatistics", _statistics, "The newest first."),
    _endpoint("neighbourhood", "getNeighbourhood", _neighbourhood, "Datasets, jobs, and edges."),
    _endpoint("column", "traceColumn", _column, "Columns, the edges between them, and the gaps."),
    _endpoint("impact", "getImpact", _impact, "Datasets, the nearest first."),
)
