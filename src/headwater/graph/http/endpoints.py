"""The graph over HTTP: /api/v1/graph/… in our own words.

Names hold colons and slashes, so they are query parameters, never parts of a path.
"""

from __future__ import annotations

from typing import Any

from headwater.graph.http.openapi import graph_paths, graph_schemas
from headwater.graph.http.query_pool import Parameters, QueryPool
from headwater.graph.marquez import endpoints as marquez_routes
from headwater.graph.marquez.openapi import marquez_paths
from headwater.graph.query.query import MAX_DEPTH, MAX_LIMIT, GraphQuery
from headwater.http.auth import AdminToken
from headwater.http.request import Request
from headwater.http.router import Router

__all__ = ["add_routes"]

KINDS = ("dataset", "job", "column")


def add_routes(routes: Router, pool: QueryPool, admin: AdminToken) -> None:
    """Serve the graph, in our words and in those of Marquez."""
    for name, answer in ANSWERS.items():
        path = f"/api/v1/graph/{name}"
        routes.add("GET", path, pool.handler(answer), needs_no_key=True, before_body=admin.authorize)
    marquez_routes.add_routes(routes, pool, admin)
    routes.described |= graph_paths() | marquez_paths()
    routes.schemas |= graph_schemas()


def _summary(query: GraphQuery, request: Request) -> Any:
    return query.summary()


def _search(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.search(
        given.get("q", ""),
        kinds=given.choices("kind", KINDS),
        namespace=given.get("namespace", ""),
        limit=given.number("limit", 50, MAX_LIMIT),
    )


def _dataset(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.dataset(given.get("namespace"), given.get("name"))


def _job(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.job(given.get("namespace"), given.get("name"))


def _run(query: GraphQuery, request: Request) -> Any:
    return query.run(Parameters(request).get("id"))


def _runs(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    job = given.get("job", "")
    return query.runs(
        given.get("namespace") if job else "",
        job,
        limit=given.number("limit", 100, MAX_LIMIT),
        offset=given.number("offset", 0, 100_000_000),
    )


def _statistics(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    limit = given.number("limit", 200, MAX_LIMIT)
    return query.statistics(given.get("namespace"), given.get("name"), limit=limit)


def _neighbourhood(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.neighbourhood(
        given.get("namespace"),
        given.get("name"),
        kind=given.choice("kind", "dataset", "job"),
        direction=given.choice("direction", "both", "up", "down"),
        depth=given.number("depth", 2, MAX_DEPTH),
        limit=given.number("limit", 300, MAX_LIMIT),
        columns=given.flag("columns", False),
    )


def _column(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.trace(
        given.get("namespace"),
        given.get("name"),
        given.get("column"),
        direction=given.choice("direction", "both", "up", "down"),
        depth=given.number("depth", 20, MAX_DEPTH),
        indirect=given.flag("indirect", True),
        limit=given.number("limit", 1_000, MAX_LIMIT),
    )


def _impact(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    return query.impact(
        given.get("namespace"),
        given.get("name"),
        given.get("column", "") or None,
        depth=given.number("depth", 50, MAX_DEPTH),
        limit=given.number("limit", 1_000, MAX_LIMIT),
    )


ANSWERS = {
    "summary": _summary,
    "search": _search,
    "dataset": _dataset,
    "job": _job,
    "run": _run,
    "runs": _runs,
    "statistics": _statistics,
    "neighbourhood": _neighbourhood,
    "column": _column,
    "impact": _impact,
}
