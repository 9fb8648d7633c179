"""The endpoints of Marquez' read API: namespaces, jobs, datasets, runs, lineage, search."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import apsw
from msgspec import Meta

from headwater.graph.marquez import history
from headwater.graph.marquez import objects as marquez
from headwater.graph.query import details
from headwater.graph.query.answers import ColumnEdge, DatasetNode, UpOrDown, id_of_key, key_of_dataset
from headwater.graph.query.names import NotFound, find_job
from headwater.graph.query.neighbourhood import neighbourhood
from headwater.graph.query.query import GraphQuery, Limit, Offset
from headwater.graph.query.trace import trace
from headwater.http.routing.endpoint import Endpoint, endpoint_of
from headwater.log.queue.sqlite import select

MAX_NODES = 2_000

Depth = Annotated[int, Meta(ge=0, le=1_000)]

PROBLEMS = {
    400: "A parameter is missing or invalid.",
    401: "The admin token is missing or unknown.",
    403: "There is no admin token, and the request does not come from this machine.",
    404: "The graph has no such node.",
    503: "The graph cannot be read, or the query took too long.",
}


# --- lists -------------------------------------------------------------------------------------------


def _namespaces(query: GraphQuery, limit: Limit = 100, offset: Offset = 0) -> Any:
    """All namespaces."""
    with query.reading() as connection:
        names = marquez.namespaces(connection)[offset : offset + limit]
        return {"namespaces": [marquez.namespace(connection, name) for name in names]}


def _all_jobs(query: GraphQuery, limit: Limit = 100, offset: Offset = 0) -> Any:
    """All jobs."""
    return _list_jobs(query, "jobs WHERE ?1 = ''", "", limit, offset)


def _jobs(query: GraphQuery, namespace: str, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The jobs of a namespace."""
    return _list_jobs(query, "jobs WHERE namespace = ?1", namespace, limit, offset)


def _list_jobs(query: GraphQuery, rows: str, namespace: str, limit: int, offset: int) -> Any:
    with query.reading() as connection:
        ids, total = _page(connection, rows, namespace, limit, offset)
        return {"jobs": [marquez.job(details.job(connection, id)) for id in ids], "totalCount": total}


def _datasets(query: GraphQuery, namespace: str, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The datasets of a namespace."""
    rows = "dataset_names WHERE namespace = ?1 AND dataset = id"  # an alias is found, but not listed
    with query.reading() as connection:
        ids, total = _page(connection, rows, namespace, limit, offset)
        found = [marquez.dataset(details.dataset(connection, id)) for id in ids]
        return {"datasets": found, "totalCount": total}


def _page(
    connection: apsw.Connection, rows: str, namespace: str, limit: int, offset: int
) -> tuple[list[int], int]:
    """The ids of a page of rows by name, and how many rows there are."""
    query = f"SELECT id FROM {rows} ORDER BY namespace, name LIMIT ?2 OFFSET ?3"  # noqa: S608
    ids = [id for (id,) in select(connection, query, namespace, limit, offset)]
    return ids, select(connection, f"SELECT count(*) FROM {rows}", namespace)[0][0]  # noqa: S608


def _runs(query: GraphQuery, namespace: str, job: str, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The runs of a job."""
    runs = query.runs(namespace, job, limit=limit, offset=offset)
    with query.reading() as connection:
        id = find_job(connection, namespace, job)
        total = select(connection, "SELECT count(*) FROM runs WHERE job = ?", id)[0][0]
    return {"runs": [marquez.run(run) for run in runs], "totalCount": total}


def _versions(query: GraphQuery, namespace: str, dataset: str, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The schema versions of a dataset."""
    found = query.dataset(namespace, dataset)
    versions = [marquez.dataset_version(found, str(uuid.UUID(version.id))) for version in found.versions]
    return {"versions": versions[offset : offset + limit], "totalCount": len(versions)}


def _search(
    query: GraphQuery,
    q: str,
    filter_: Literal["", "DATASET", "JOB", "dataset", "job"] = "",
    namespace: str = "",
    limit: Limit = 10,
) -> Any:
    """Datasets and jobs by a part of their name."""
    kinds = (filter_.lower(),) if filter_ else ("dataset", "job")
    total = query.count_matches(q, kinds=kinds, namespace=namespace)
    results = [
        {
            "type": result.kind.upper(),
            "name": result.name,
            "updatedAt": result.last_at,
            "namespace": result.namespace,
            "nodeId": f"{result.kind}:{result.namespace}:{result.name}",
        }
        for result in query.search(q, kinds=kinds, namespace=namespace, limit=limit)
    ]
    return {"totalCount": total, "results": results}


def _tags(query: GraphQuery, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The tags of datasets and jobs, from their facets."""
    with query.reading() as connection:
        return {"tags": history.tags(connection)[offset : offset + limit]}


def _sources(query: GraphQuery, limit: Limit = 100, offset: Offset = 0) -> Any:
    """The data sources of datasets, from their facets and namespaces."""
    with query.reading() as connection:
        return {"sources": history.sources(connection)[offset : offset + limit]}


def _source(query: GraphQuery, source: str) -> Any:
    """A data source."""
    with query.reading() as connection:
        for found in history.sources(connection):
            if found["name"] == source:
                return found
    raise NotFound(f"There is no source {source}.", hint="/api/v1/sources lists them.")


# --- over time ---------------------------------------------------------------------------------------


def _event_counts(query: GraphQuery, period: history.Period = "DAY", timezone: str = "UTC") -> Any:
    """The runs of the last hours or days by their latest state."""
    spans = history.intervals(period, timezone, datetime.now(UTC))
    with query.reading() as connection:
        return history.event_counts(connection, spans)


def _counts(query: GraphQuery, asset: history.Asset, period: history.Period, timezone: str) -> Any:
    spans = history.intervals(period, timezone, datetime.now(UTC))
    with query.reading() as connection:
        return history.asset_counts(connection, asset, spans)


def _job_counts(query: GraphQuery, period: history.Period = "DAY", timezone: str = "UTC") -> Any:
    """How many jobs there were in the last hours or days."""
    return _counts(query, "jobs", period, timezone)


def _dataset_counts(query: GraphQuery, period: history.Period = "DAY", timezone: str = "UTC") -> Any:
    """How many datasets there were in the last hours or days."""
    return _counts(query, "datasets", period, timezone)


def _source_counts(query: GraphQuery, period: history.Period = "DAY", timezone: str = "UTC") -> Any:
    """How many sources there were in the last hours or days."""
    return _counts(query, "sources", period, timezone)


def _events(
    query: GraphQuery,
    after: str = "",
    before: str = "",
    sort_direction: Literal["desc", "asc"] = "desc",
    limit: Limit = 100,
    offset: Offset = 0,
) -> Any:
    """The latest state of each run of a period, in the form of an OpenLineage event."""
    with query.reading() as connection:
        return history.events(
            connection,
            after=after,
            before=before,
            newest_first=sort_direction == "desc",
            limit=limit,
            offset=offset,
        )


# --- one node ----------------------------------------------------------------------------------------


def _namespace(query: GraphQuery, namespace: str) -> Any:
    """A namespace."""
    with query.reading() as connection:
        return marquez.namespace(connection, namespace)


def _job(query: GraphQuery, namespace: str, job: str) -> Any:
    """A job."""
    return marquez.job(query.job(namespace, job))


def _dataset(query: GraphQuery, namespace: str, dataset: str) -> Any:
    """A dataset."""
    return marquez.dataset(query.dataset(namespace, dataset))


def _version(query: GraphQuery, namespace: str, dataset: str, version: str) -> Any:
    """A dataset with one of its schema versions."""
    return marquez.dataset_version(query.dataset(namespace, dataset), version)


def _run(query: GraphQuery, id: str) -> Any:
    """A run."""
    found = query.run(id)
    return marquez.run(found.run, found.facets)


def _run_facets(query: GraphQuery, id: str, type_: Literal["run", "job", "RUN", "JOB"] = "run") -> Any:
    """The facets of a run, or of its job."""
    found = query.run(id)
    job = found.run.job
    facets = query.job(job.namespace, job.name).facets if type_.lower() == "job" else found.facets
    return {"runId": found.run.id, "facets": facets}


# --- graphs ------------------------------------------------------------------------------------------


def _lineage(query: GraphQuery, node_id: str, depth: Depth = 20) -> Any:
    """The graph around a dataset or job."""
    kind, _, rest = node_id.partition(":")
    with query.reading() as connection:
        rest = rest.partition("#")[0] if kind == "job" else rest
        dataset = marquez.dataset_of_node(connection, rest) if kind == "dataset" else None
        job = marquez.job_of_node(connection, rest) if kind == "job" else None
        if dataset is None and job is None:
            raise NotFound(f"No node has the id {node_id}.", hint="Use dataset:<namespace>:<name> or job:….")
        around = neighbourhood(
            connection,
            dataset=dataset,
            job=job,
            directions=("up", "down"),
            depth=min(100, (depth + 1) // 2),
            limit=MAX_NODES,
            columns=False,
        )
        nodes: dict[str, dict[str, Any]] = {}
        for node in around.datasets:
            data = marquez.dataset(details.dataset(connection, id_of_key(node.key)))
            nodes[node.key] = _node(f"dataset:{node.namespace}:{node.name}", "DATASET", data)
        for job_node in around.jobs:
            data = marquez.job(details.job(connection, id_of_key(job_node.key)))
            nodes[job_node.key] = _node(f"job:{job_node.namespace}:{job_node.name}", "JOB", data)
    for edge in around.edges:
        ends = {"origin": nodes[edge.source]["id"], "destination": nodes[edge.target]["id"]}
        nodes[edge.source]["outEdges"].append(ends)
        nodes[edge.target]["inEdges"].append(ends)
    return {"graph": list(nodes.values())}


def _node(id: str, kind: str, data: Any) -> dict[str, Any]:
    return {"id": id, "type": kind, "data": data, "inEdges": [], "outEdges": []}


def _column_lineage(query: GraphQuery, node_id: str, depth: Depth = 20, with_downstream: bool = False) -> Any:
    """The columns upstream of a field, or of the fields of a dataset or job."""
    directions: tuple[UpOrDown, ...] = ("up", "down") if with_downstream else ("up",)
    with query.reading() as connection:
        wanted = marquez.fields_of_node(connection, node_id)
        if not wanted:
            raise NotFound(
                f"{node_id} has no known columns.", hint="Use datasetField:<namespace>:<name>:<field>."
            )
        edges: set[ColumnEdge] = set()
        datasets: dict[str, DatasetNode] = {}
        for id, column in wanted[:MAX_NODES]:
            traced = trace(
                connection,
                id,
                column,
                directions=directions,
                depth=min(depth, 100),
                indirect=True,
                limit=MAX_NODES,
            )
            edges |= set(traced.column_edges)
            datasets |= {node.key: node for node in traced.datasets}
    traced_columns = [(key_of_dataset(id), column) for id, column in wanted[:MAX_NODES]]
    return {"graph": _fields(edges, datasets, traced_columns)}


def _fields(
    edges: set[ColumnEdge], datasets: dict[str, DatasetNode], wanted: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    nodes: dict[tuple[str, str], dict[str, Any]] = {}

    def node(key: str, column: str) -> dict[str, Any]:
        if (key, column) not in nodes:
            of = datasets[key]
            data: dict[str, Any] = {
                "namespace": of.namespace,
                "dataset": of.name,
                "datasetVersion": None,
                "field": column,
                "fieldType": None,
                "transformationDescription": None,
                "transformationType": None,
                "inputFields": [],
            }
            id = f"datasetField:{of.namespace}:{of.name}:{column}"
            nodes[key, column] = _node(id, "DATASET_FIELD", data)
        return nodes[key, column]

    for key, column in wanted:
        node(key, column)
    for edge in sorted(edges, key=lambda edge: (edge.source, str(edge.source_column), edge.target)):
        if edge.source_column is None or edge.target_column is None:
            continue  # Marquez has no edges of whole datasets
        source, target = node(edge.source, edge.source_column), node(edge.target, edge.target_column)
        ends = {"origin": source["id"], "destination": target["id"]}
        if ends not in target["inEdges"]:
            source["outEdges"].append(ends)
            target["inEdges"].append(ends)
        target["data"]["inputFields"].append(
            {
                "namespace": source["data"]["namespace"],
                "dataset": source["data"]["dataset"],
                "datasetVersion": None,
                "field": edge.source_column,
                "transformationDescription": edge.description or None,
                "transformationType": edge.subtype or edge.type,
            }
        )
    return list(nodes.values())


def _endpoint(
    path: str, operation_id: str, function: Callable[..., Any]
) -> tuple[Endpoint, Callable[..., Any]]:
    endpoint = endpoint_of(
        function,
        "GET",
        f"/api/v1/{path}",
        answer="As Marquez answers.",
        operation_id=operation_id,
        problems=PROBLEMS,
        security=("admin", ""),
        camel_case=True,
    )
    return endpoint, function


ENDPOINTS = (
    _endpoint("namespaces", "listNamespaces", _namespaces),
    _endpoint("namespaces/{namespace}", "getNamespace", _namespace),
    _endpoint("jobs", "listAllJobs", _all_jobs),
    _endpoint("namespaces/{namespace}/jobs", "listJobs", _jobs),
    _endpoint("namespaces/{namespace}/jobs/{job}", "getJob", _job),
    _endpoint("namespaces/{namespace}/jobs/{job}/runs", "listRuns", _runs),
    _endpoint("namespaces/{namespace}/datasets", "listDatasets", _datasets),
    _endpoint("namespaces/{namespace}/datasets/{dataset}", "getDataset", _dataset),
    _endpoint("namespaces/{namespace}/datasets/{dataset}/versions", "listDatasetVersions", _versions),
    _endpoint("namespaces/{namespace}/datasets/{dataset}/versions/{version}", "getDatasetVersion", _version),
    _endpoint("jobs/runs/{id}", "getRun", _run),
    _endpoint("jobs/runs/{id}/facets", "getRunFacets", _run_facets),
    _endpoint("lineage", "getLineage", _lineage),
    _endpoint("column-lineage", "getColumnLineage", _column_lineage),
    _endpoint("search", "search", _search),
    _endpoint("search/", "searchWithSlash", _search),
    _endpoint("stats/lineage-events", "getLineageEventStats", _event_counts),
    _endpoint("stats/jobs", "getJobStats", _job_counts),
    _endpoint("stats/datasets", "getDatasetStats", _dataset_counts),
    _endpoint("stats/sources", "getSourceStats", _source_counts),
    _endpoint("events/lineage", "listLineageEvents", _events),
    _endpoint("sources/{source}", "getSource", _source),
    _endpoint("tags", "listTags", _tags),
    _endpoint("sources", "listSources", _sources),
)
