"""The OpenAPI description of the routes that answer in the words of Marquez."""

from __future__ import annotations

from typing import Any

from headwater.graph.http.openapi import PROBLEMS, parameter
from headwater.graph.http.openapi_parts import operation
from headwater.graph.query.query import MAX_LIMIT

__all__ = ["marquez_paths"]

_NAMESPACE = parameter("namespace", {"type": "string"}, required=True, place="path")
_JOB = parameter("job", {"type": "string"}, required=True, place="path")
_DATASET = parameter("dataset", {"type": "string"}, required=True, place="path")
_VERSION = parameter("version", {"type": "string"}, required=True, place="path")
_ID = parameter("id", {"type": "string"}, required=True, place="path")
_PAGE = [
    parameter("limit", {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT}),
    parameter("offset", {"type": "integer", "minimum": 0, "maximum": 100_000_000}),
]
_NODE = [
    parameter("nodeId", {"type": "string"}, required=True),
    parameter("depth", {"type": "integer", "minimum": 0, "maximum": 1_000}),
]
_PATHS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "/api/v1/namespaces": ("listNamespaces", "All namespaces.", _PAGE),
    "/api/v1/namespaces/{namespace}": ("getNamespace", "A namespace.", [_NAMESPACE]),
    "/api/v1/jobs": ("listAllJobs", "All jobs.", _PAGE),
    "/api/v1/namespaces/{namespace}/jobs": ("listJobs", "The jobs of a namespace.", [_NAMESPACE, *_PAGE]),
    "/api/v1/namespaces/{namespace}/jobs/{job}": ("getJob", "A job.", [_NAMESPACE, _JOB]),
    "/api/v1/namespaces/{namespace}/jobs/{job}/runs": (
        "listRuns",
        "A job's runs.",
        [_NAMESPACE, _JOB, *_PAGE],
    ),
    "/api/v1/namespaces/{namespace}/datasets": (
        "listDatasets",
        "The datasets of a namespace.",
        [_NAMESPACE, *_PAGE],
    ),
    "/api/v1/namespaces/{namespace}/datasets/{dataset}": ("getDataset", "A dataset.", [_NAMESPACE, _DATASET]),
    "/api/v1/namespaces/{namespace}/datasets/{dataset}/versions": (
        "listDatasetVersions",
        "The schemas that a dataset had.",
        [_NAMESPACE, _DATASET, *_PAGE],
    ),
    "/api/v1/namespaces/{namespace}/datasets/{dataset}/versions/{version}": (
        "getDatasetVersion",
        "A dataset as it was.",
        [_NAMESPACE, _DATASET, _VERSION],
    ),
    "/api/v1/jobs/runs/{id}": ("getRun", "A run.", [_ID]),
    "/api/v1/jobs/runs/{id}/facets": (
        "getRunFacets",
        "The facets of a run, or of its job.",
        [_ID, parameter("type", {"enum": ["run", "job"]})],
    ),
    "/api/v1/lineage": ("getLineage", "The graph around a dataset or job.", _NODE),
    "/api/v1/column-lineage": (
        "getColumnLineage",
        "The columns that those of a dataset, a job or one field are made of.",
        [*_NODE, parameter("withDownstream", {"type": "boolean"})],
    ),
    "/api/v1/search": (
        "search",
        "Datasets and jobs by a part of their name.",
        [
            parameter("q", {"type": "string"}, required=True),
            parameter("filter", {"enum": ["DATASET", "JOB", "dataset", "job"]}),
            parameter("namespace", {"type": "string"}),
            _PAGE[0],
        ],
    ),
    "/api/v1/tags": ("listTags", "None: tags are facets here.", _PAGE),
    "/api/v1/sources": ("listSources", "None: sources are facets here.", _PAGE),
}


def marquez_paths() -> dict[str, Any]:
    """Their paths for the OpenAPI description; what they answer is Marquez' to describe."""
    found = {}
    for path, (name, text, parameters) in _PATHS.items():
        answers = {"200": {"description": "As Marquez answers.", "content": {"application/json": {}}}}
        problems = PROBLEMS | {404: "The graph does not know it."}
        told = operation(name, text, answers, problems, security=("admin", ""))
        found[path] = {"get": told | {"parameters": parameters}}
    return found
