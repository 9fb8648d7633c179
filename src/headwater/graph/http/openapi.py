"""The OpenAPI description of the graph's own routes; the schemas of the answers come from `views`."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.graph.http.openapi_parts import answer, operation
from headwater.graph.query import answers as views

__all__ = ["PROBLEMS", "graph_paths", "graph_schemas", "parameter"]

PROBLEMS = {
    400: "A query parameter is missing or cannot be read.",
    401: "The admin token is missing or unknown.",
    403: "There is no admin token, and the request does not come from this machine.",
    503: "The graph cannot be read, or the query took too long.",
}
_MISSING = {404: "The graph does not know it."}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}


def parameter(
    name: str, schema: dict[str, Any], *, required: bool = False, place: str = "query"
) -> dict[str, Any]:
    """A parameter of a route."""
    return {"name": name, "in": place, "required": required, "schema": schema}


def _count(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most}


_NAMED = [parameter("namespace", TEXT, required=True), parameter("name", TEXT, required=True)]
_LIMIT = parameter("limit", _count(5_000))
_DEPTH = parameter("depth", _count(100))
_DIRECTION = parameter("direction", {"enum": ["both", "up", "down"]})


def _get(
    name: str, text: str, told: str, view: str, parameters: list[dict[str, Any]], *, missing: bool = True
) -> dict[str, Any]:
    found = operation(
        name,
        text,
        answer(200, told, f"Graph{view}"),
        PROBLEMS | (_MISSING if missing else {}),
        security=("admin", ""),
    )
    return {"get": found | {"parameters": parameters}}


def graph_paths() -> dict[str, Any]:
    """The paths; they are served where the graph is enabled."""
    return {
        "/api/v1/graph/summary": _get(
            "getGraphSummary",
            "How much the graph holds, and how fresh it is.",
            "The numbers.",
            "Summary",
            [],
            missing=False,
        ),
        "/api/v1/graph/search": _get(
            "searchGraph",
            "Datasets, jobs and columns whose names hold all words of a text; without one, the latest.",
            "The closest first.",
            "SearchResults",
            [
                parameter("q", TEXT),
                parameter("kind", {"type": "array", "items": {"enum": ["dataset", "job", "column"]}}),
                parameter("namespace", TEXT),
                _LIMIT,
            ],
            missing=False,
        ),
        "/api/v1/graph/dataset": _get(
            "getGraphDataset",
            "A dataset: schema and its changes, users, statistics over time, facets.",
            "The dataset.",
            "Dataset",
            _NAMED,
        ),
        "/api/v1/graph/job": _get(
            "getGraphJob",
            "A job: what it reads and writes, its latest runs, facets.",
            "The job.",
            "Job",
            _NAMED,
        ),
        "/api/v1/graph/run": _get(
            "getGraphRun",
            "A run: timing, error, inputs and outputs, the runs it began, facets.",
            "The run.",
            "Run",
            [parameter("id", TEXT, required=True)],
        ),
        "/api/v1/graph/runs": _get(
            "listGraphRuns",
            "The runs of a job, or all.",
            "Newest first.",
            "RunSummaries",
            [
                parameter("namespace", TEXT),
                parameter("job", TEXT),
                _LIMIT,
                parameter("offset", _count(100_000_000)),
            ],
        ),
        "/api/v1/graph/statistics": _get(
            "getGraphStatistics",
            "What the latest runs told about a dataset: rows, bytes, files.",
            "Newest first.",
            "Statistics",
            [*_NAMED, _LIMIT],
        ),
        "/api/v1/graph/neighbourhood": _get(
            "getNeighbourhood",
            "What is around a dataset or job; with columns and the edges between them, if asked for.",
            "Datasets, jobs, and edges between them.",
            "Neighbourhood",
            [
                *_NAMED,
                parameter("kind", {"enum": ["dataset", "job"]}),
                _DIRECTION,
                _DEPTH,
                _LIMIT,
                parameter("columns", FLAG),
            ],
        ),
        "/api/v1/graph/column": _get(
            "traceColumn",
            "Where a column comes from, and what is made of it.",
            "Columns, the edges between them, and the gaps.",
            "Trace",
            [
                *_NAMED,
                parameter("column", TEXT, required=True),
                _DIRECTION,
                _DEPTH,
                parameter("indirect", FLAG),
                _LIMIT,
            ],
        ),
        "/api/v1/graph/impact": _get(
            "getImpact",
            "What a change of a dataset, or of one column, reaches downstream.",
            "Datasets, nearest first.",
            "Impact",
            [*_NAMED, parameter("column", TEXT), _DEPTH, _LIMIT],
        ),
    }


def graph_schemas() -> dict[str, Any]:
    """The schemas of the answers; `Graph` before each name, since OpenLineage has a Run and a Job too."""
    roots = (
        views.Dataset,
        views.Job,
        views.Run,
        views.Neighbourhood,
        views.Trace,
        views.Impact,
        views.SearchResult,
        views.RunSummary,
        views.Statistic,
        views.Summary,
    )
    _, components = msgspec.json.schema_components(roots, ref_template="#/components/schemas/Graph{name}")
    lists = {"SearchResults": "SearchResult", "RunSummaries": "RunSummary", "Statistics": "Statistic"}
    return {f"Graph{name}": schema for name, schema in components.items()} | {
        f"Graph{name}": {"type": "array", "items": {"$ref": f"#/components/schemas/Graph{of}"}}
        for name, of in lists.items()
    }
