"""The answers of `query` as the JSON objects of Marquez.

Fields that the graph does not have, such as owners of namespaces, are empty. A node's id joins namespace and
name by colons, which both may contain, so all ways to split it are looked up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from headwater.graph.ingest.untrusted_json import iso, mapping
from headwater.graph.marquez.history import field_tags
from headwater.graph.query import details
from headwater.graph.query.answers import Column, Dataset, Job, RunSummary, id_of_key
from headwater.graph.query.names import NotFound, has_column
from headwater.graph.store.ids import dataset_id, job_id
from headwater.log.queue.sqlite import select

STATES = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
EPOCH = "1970-01-01T00:00:00Z"


# --- namespaces --------------------------------------------------------------------------------------

# Each next namespace by one lookup, however many names it has.
_NAMESPACES = (
    "WITH RECURSIVE found(text) AS (SELECT min(namespace) FROM {table} UNION ALL"
    " SELECT (SELECT min(namespace) FROM {table} WHERE namespace > text) FROM found WHERE text IS NOT NULL)"
    " SELECT text FROM found WHERE text IS NOT NULL"
)


def namespaces(connection: apsw.Connection) -> list[str]:
    """All namespaces, of datasets and of jobs."""
    found: set[str] = set()
    for table in ("dataset_names", "jobs"):
        found |= {text for (text,) in select(connection, _NAMESPACES.format(table=table))}
    return sorted(found)


def namespace(connection: apsw.Connection, name: str) -> dict[str, Any]:
    """One namespace, with the time of its first and last mention."""
    query = (
        "SELECT min(first_at), max(last_at) FROM"
        " (SELECT first_at, last_at FROM dataset_names WHERE namespace = ?1"
        " UNION ALL SELECT first_at, last_at FROM jobs WHERE namespace = ?1)"
    )
    first_at, last_at = select(connection, query, name)[0]
    if first_at is None:
        raise NotFound(f"There is no namespace {name}.", hint="/api/v1/namespaces lists them.")
    return {
        "name": name,
        "createdAt": iso(first_at),
        "updatedAt": iso(last_at),
        "ownerName": "anonymous",
        "description": None,
        "isHidden": False,
    }


# --- jobs and runs -----------------------------------------------------------------------------------


def job(found: Job) -> dict[str, Any]:
    """A job, with its latest run."""
    latest = [run(summary) for summary in found.runs]
    kind = _facet_text(found.facets, "jobType", "processingType")
    return {
        "id": {"namespace": found.namespace, "name": found.name},
        "type": {"STREAMING": "STREAM"}.get(kind, kind) if kind in ("STREAMING", "SERVICE") else "BATCH",
        "name": found.name,
        "simpleName": found.name.rpartition(".")[2],
        "parentJobName": found.parent.name if found.parent else None,
        "parentJobUuid": None,
        "createdAt": found.first_at,
        "updatedAt": found.last_at,
        "namespace": found.namespace,
        "inputs": [{"namespace": node.namespace, "name": node.name} for node in found.inputs],
        "outputs": [{"namespace": node.namespace, "name": node.name} for node in found.outputs],
        "location": _facet_text(found.facets, "sourceCodeLocation", "url") or None,
        "description": _facet_text(found.facets, "documentation", "description") or None,
        "latestRun": latest[0] if latest else None,
        "latestRuns": latest,
        "tags": _tags(found.facets),
        "labels": [],
        "facets": found.facets,
    }


def run(found: RunSummary, facets: dict[str, msgspec.Raw] | None = None) -> dict[str, Any]:
    """A run of a job."""
    return {
        "id": found.id,
        "createdAt": found.first_at,
        "updatedAt": found.last_at,
        "nominalStartTime": found.nominal_start_at,
        "nominalEndTime": found.nominal_end_at,
        "state": STATES.get(found.state, found.state),
        "startedAt": found.started_at,
        "endedAt": found.ended_at,
        "durationMs": int(found.seconds * 1000) if found.seconds is not None else None,
        "args": {},
        "jobVersion": None,
        "inputDatasetVersions": [],
        "outputDatasetVersions": [],
        "facets": facets or {},
    }


# --- datasets ----------------------------------------------------------------------------------------


def dataset(found: Dataset) -> dict[str, Any]:
    """A dataset with the fields of its current schema."""
    current = next((version.id for version in found.versions if version.is_current), None)
    state = _facet_text(found.facets, "lifecycleStateChange", "lifecycleStateChange")
    return {
        "id": {"namespace": found.namespace, "name": found.name},
        "type": "STREAM" if _is_stream(found) else "DB_TABLE",
        "name": found.name,
        "physicalName": found.name,
        "createdAt": found.first_at or EPOCH,
        "updatedAt": found.last_at or EPOCH,
        "namespace": found.namespace,
        "sourceName": _facet_text(found.facets, "dataSource", "name") or found.namespace,
        "fields": _fields(found.columns, found.facets),
        "tags": _tags(found.facets),
        "lastModifiedAt": next((point.at for point in found.statistics if point.direction == "output"), None),
        "description": _facet_text(found.facets, "documentation", "description") or None,
        "lastLifecycleState": state,
        "currentVersion": str(uuid.UUID(current)) if current else None,
        "columnLineage": None,
        "facets": found.facets,
        "deleted": state == "DROP",
    }


def dataset_version(found: Dataset, version: str) -> dict[str, Any]:
    """A dataset with one of its schema versions."""
    for known in found.versions:
        if str(uuid.UUID(known.id)) == version.lower():
            return dataset(found) | {
                "id": {"namespace": found.namespace, "name": found.name, "version": version.lower()},
                "version": version.lower(),
                "createdAt": known.first_at,
                "fields": _fields(known.columns, found.facets),
                "createdByRun": None,
                "currentSchemaVersion": version.lower(),
            }
    raise NotFound(f"The dataset {found.name} has no version {version}.", hint="List its versions.")


def _tags(facets: dict[str, msgspec.Raw], field: str | None = None) -> list[str]:
    return field_tags(mapping(msgspec.json.decode(facets.get("tags", b"null"))), field)


def _fields(columns: list[Column], facets: dict[str, msgspec.Raw]) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": column.type or None,
            "tags": _tags(facets, column.name),
            "description": column.description or None,
        }
        for column in columns
    ]


def _is_stream(found: Dataset) -> bool:
    kind = _facet_text(found.facets, "datasetType", "datasetType").upper()
    return kind in ("STREAM", "TOPIC") or found.namespace.startswith(("kafka:", "kinesis:", "pubsub"))


def _facet_text(facets: dict[str, msgspec.Raw], key: str, field: str) -> str:
    """A text of a facet; empty without one."""
    found = mapping(msgspec.json.decode(facets.get(key, b"null"))).get(field)
    return found if isinstance(found, str) else ""


# --- nodes -------------------------------------------------------------------------------------------


def _colon_splits(text: str) -> Iterator[tuple[str, str]]:
    """All ways to split a text at one of its colons."""
    for place, character in enumerate(text):
        if character == ":":
            yield text[:place], text[place + 1 :]


def dataset_of_node(connection: apsw.Connection, rest: str) -> int | None:
    """The dataset that follows `dataset:` in a node's id."""
    query = "SELECT dataset FROM dataset_names WHERE id = ?"
    ids = (id for pair in _colon_splits(rest) for (id,) in select(connection, query, dataset_id(*pair)))
    return next(ids, None)


def job_of_node(connection: apsw.Connection, rest: str) -> int | None:
    """The job that follows `job:` in a node's id."""
    query = "SELECT id FROM jobs WHERE id = ?"
    ids = (id for pair in _colon_splits(rest) for (id,) in select(connection, query, job_id(*pair)))
    return next(ids, None)


def fields_of_node(connection: apsw.Connection, node_id: str) -> list[tuple[int, str]]:
    """Dataset and column of each field of a node: a field, a dataset, or the outputs of a job."""
    kind, _, rest = node_id.partition(":")
    datasets: list[int] = []
    if kind == "datasetField":
        for owner, column in _colon_splits(rest):
            found = dataset_of_node(connection, owner)
            if found is not None and has_column(connection, found, column):
                return [(found, column)]
    elif kind == "dataset" and (found := dataset_of_node(connection, rest)) is not None:
        datasets = [found]
    elif kind == "job" and (job := job_of_node(connection, rest)) is not None:
        datasets = [id_of_key(node.key) for node in details.job(connection, job).outputs]
    columns = details.columns_of(connection, datasets)
    return [(id, column.name) for id, (known, _) in columns.items() for column in known]
