"""The read part of Marquez' API, as far as its own clients use it: /api/v1/namespaces, jobs, lineage, …"""

from __future__ import annotations

from typing import Any

from headwater.graph.http.query_pool import Parameters, QueryPool, segments
from headwater.graph.marquez import objects as marquez
from headwater.graph.query import details
from headwater.graph.query.answers import ColumnEdge, DatasetNode, UpOrDown
from headwater.graph.query.details import columns_of
from headwater.graph.query.names import NotFound, find_job
from headwater.graph.query.neighbourhood import neighbourhood
from headwater.graph.query.query import MAX_LIMIT, GraphQuery
from headwater.graph.query.trace import trace
from headwater.graph.store.ids import field_id
from headwater.http.auth import AdminToken
from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.http.router import Router
from headwater.log.queue.sqlite import select

__all__ = ["add_routes"]

NAMESPACES = "/api/v1/namespaces/"
RUNS = "/api/v1/jobs/runs/"
MAX_NODES = 2_000
MAX_EDGES = 20_000


def add_routes(routes: Router, pool: QueryPool, admin: AdminToken) -> None:
    """Serve them; POST /api/v1/lineage stays what it is."""
    for path, answer in {
        "/api/v1/namespaces": _namespaces,
        "/api/v1/jobs": lambda query, request: _jobs(query, request, None),
        "/api/v1/lineage": _lineage,
        "/api/v1/column-lineage": _column_lineage,
        "/api/v1/search": _search,
        "/api/v1/tags": lambda query, request: {"tags": []},
        "/api/v1/sources": lambda query, request: {"sources": []},
    }.items():
        routes.add("GET", path, pool.handler(answer), needs_no_key=True, before_body=admin.authorize)
    routes.mount("GET", NAMESPACES, pool.handler(_namespace_tree), before_body=admin.authorize)
    routes.mount("GET", RUNS, pool.handler(_run_tree), before_body=admin.authorize)


# --- lists -------------------------------------------------------------------------------------------


def _page(request: Request) -> tuple[int, int]:
    given = Parameters(request)
    return given.number("limit", 100, MAX_LIMIT), given.number("offset", 0, 100_000_000)


def _namespaces(query: GraphQuery, request: Request) -> Any:
    limit, offset = _page(request)
    with query.reading() as connection:
        names = marquez.namespaces(connection)[offset : offset + limit]
        return {"namespaces": [marquez.namespace(connection, name) for name in names]}


def _jobs(query: GraphQuery, request: Request, namespace: str | None) -> Any:
    limit, offset = _page(request)
    where = "WHERE namespace = ?1" if namespace is not None else "WHERE ?1 IS NULL"
    with query.reading() as connection:
        rows = select(
            connection,
            f"SELECT id FROM jobs {where} ORDER BY namespace, name LIMIT ?2 OFFSET ?3",  # noqa: S608
            namespace,
            limit,
            offset,
        )
        total = select(connection, f"SELECT count(*) FROM jobs {where}", namespace)[0][0]  # noqa: S608
        return {"jobs": [marquez.job(details.job(connection, id)) for (id,) in rows], "totalCount": total}


def _datasets(query: GraphQuery, request: Request, namespace: str) -> Any:
    limit, offset = _page(request)
    where = "WHERE namespace = ?1 AND dataset = id"  # an alias is found, but not listed
    with query.reading() as connection:
        rows = select(
            connection,
            f"SELECT id FROM names {where} ORDER BY name LIMIT ?2 OFFSET ?3",  # noqa: S608
            namespace,
            limit,
            offset,
        )
        total = select(connection, f"SELECT count(*) FROM names {where}", namespace)[0][0]  # noqa: S608
        found = [marquez.dataset(details.dataset(connection, id)) for (id,) in rows]
        return {"datasets": found, "totalCount": total}


def _search(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    kind = given.get("filter", "").lower()
    if kind not in ("", "dataset", "job"):
        raise Problem(400, "bad_request", "`filter` must be DATASET or JOB.", hint="Leave it out for both.")
    hits = query.search(
        given.get("q"),
        kinds=(kind,) if kind else ("dataset", "job"),
        namespace=given.get("namespace", ""),
        limit=given.number("limit", 10, MAX_LIMIT),
    )
    results = [
        {
            "type": hit.kind.upper(),
            "name": hit.name,
            "updatedAt": hit.last_at,
            "namespace": hit.namespace,
            "nodeId": f"{hit.kind}:{hit.namespace}:{hit.name}",
        }
        for hit in hits
    ]
    return {"totalCount": len(results), "results": results}


# --- one thing ---------------------------------------------------------------------------------------


def _namespace_tree(query: GraphQuery, request: Request) -> Any:
    match segments(request, NAMESPACES):
        case [namespace]:
            with query.reading() as connection:
                return marquez.namespace(connection, namespace)
        case [namespace, "jobs"]:
            return _jobs(query, request, namespace)
        case [namespace, "jobs", name]:
            return marquez.job(query.job(namespace, name))
        case [namespace, "jobs", name, "runs"]:
            limit, offset = _page(request)
            runs = query.runs(namespace, name, limit=limit, offset=offset)
            with query.reading() as connection:
                total = details.count_runs(connection, find_job(connection, namespace, name))
            return {"runs": [marquez.run(run) for run in runs], "totalCount": total}
        case [namespace, "datasets"]:
            return _datasets(query, request, namespace)
        case [namespace, "datasets", name]:
            return marquez.dataset(query.dataset(namespace, name))
        case [namespace, "datasets", name, "versions"]:
            found = query.dataset(namespace, name)
            versions = [marquez.dataset_version(found, _version(each.id)) for each in found.versions]
            limit, offset = _page(request)
            return {"versions": versions[offset : offset + limit], "totalCount": len(versions)}
        case [namespace, "datasets", name, "versions", version]:
            return marquez.dataset_version(query.dataset(namespace, name), version)
    raise _nothing()


def _version(id: str) -> str:
    return f"{id[:8]}-{id[8:12]}-{id[12:16]}-{id[16:20]}-{id[20:]}"


def _run_tree(query: GraphQuery, request: Request) -> Any:
    match segments(request, RUNS):
        case [id]:
            found = query.run(id)
            return marquez.run(found.run, found.facets)
        case [id, "facets"]:
            kind = Parameters(request).get("type", "run").lower()
            found = query.run(id)
            job = found.run.job
            facets = query.job(job.namespace, job.name).facets if kind == "job" else found.facets
            return {"runId": found.run.id, "facets": facets}
    raise _nothing()


def _nothing() -> Problem:
    return Problem(404, "not_found", "Nothing is served at this path.", hint="See /openapi.json.")


# --- graphs ------------------------------------------------------------------------------------------


def _lineage(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    node, depth = given.get("nodeId"), given.number("depth", 20, 1_000)
    kind, _, rest = node.partition(":")
    with query.reading() as connection:
        rest = rest.partition("#")[0] if kind == "job" else rest
        dataset = marquez.dataset_of_node(connection, rest) if kind == "dataset" else None
        job = marquez.job_of_node(connection, rest) if kind == "job" else None
        if dataset is None and job is None:
            raise NotFound(f"No node is called {node}.", hint="Use dataset:<namespace>:<name> or job:….")
        around = neighbourhood(
            connection, dataset=dataset, job=job, depth=min(100, (depth + 1) // 2), limit=MAX_NODES
        )
        nodes: dict[str, dict[str, Any]] = {}
        for node_ in around.datasets:
            data = marquez.dataset(details.dataset(connection, int(node_.key[1:], 16)))
            nodes[node_.key] = _node(f"dataset:{node_.namespace}:{node_.name}", "DATASET", data)
        for each in around.jobs:
            data = marquez.job(details.job(connection, int(each.key[1:], 16)))
            nodes[each.key] = _node(f"job:{each.namespace}:{each.name}", "JOB", data)
    for edge in around.edges:
        told = {"origin": nodes[edge.source]["id"], "destination": nodes[edge.target]["id"]}
        nodes[edge.source]["outEdges"].append(told)
        nodes[edge.target]["inEdges"].append(told)
    return {"graph": list(nodes.values())}


def _node(id: str, kind: str, data: Any) -> dict[str, Any]:
    return {"id": id, "type": kind, "data": data, "inEdges": [], "outEdges": []}


def _column_lineage(query: GraphQuery, request: Request) -> Any:
    given = Parameters(request)
    node, depth = given.get("nodeId"), given.number("depth", 20, 1_000)
    ways: tuple[UpOrDown, ...] = ("up", "down") if given.flag("withDownstream", False) else ("up",)
    kind, _, rest = node.partition(":")
    with query.reading() as connection:
        wanted: list[tuple[int, str]] = []
        if kind == "datasetField":
            found = marquez.field_of_node(connection, rest)
            wanted = [found] if found else []
        elif kind == "dataset":
            if (dataset := marquez.dataset_of_node(connection, rest)) is not None:
                wanted = [(dataset, column.name) for column in columns_of(connection, [dataset])[dataset]]
        elif kind == "job" and (job := marquez.job_of_node(connection, rest)) is not None:
            outputs = [int(node.key[1:], 16) for node in details.job(connection, job).outputs]
            for id, columns in columns_of(connection, outputs).items():
                wanted += [(id, column.name) for column in columns]
        if not wanted:
            raise NotFound(
                f"No columns are known of {node}.", hint="Use datasetField:<namespace>:<name>:<field>."
            )
        edges: set[ColumnEdge] = set()
        datasets: dict[str, DatasetNode] = {}
        for id, column in wanted[:MAX_NODES]:
            traced = trace(
                connection,
                id,
                field_id(column),
                column,
                directions=ways,
                depth=min(depth, 100),
                indirect=True,
                limit=MAX_NODES,
            )
            edges |= set(traced.column_edges)
            datasets |= {node.key: node for node in traced.datasets}
    return {"graph": _fields(edges, datasets, [(f"d{id:x}", column) for id, column in wanted])}


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
            continue  # Marquez knows no edge that concerns a dataset as a whole
        source, target = node(edge.source, edge.source_column), node(edge.target, edge.target_column)
        told = {"origin": source["id"], "destination": target["id"]}
        if told not in target["inEdges"]:
            source["outEdges"].append(told)
            target["inEdges"].append(told)
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
