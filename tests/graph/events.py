"""Events and graphs for tests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw

from headwater.graph.query.query import GraphQuery
from headwater.graph.store.database import FILE, GraphDatabase
from headwater.settings import GraphSettings

PRODUCER = "https://example.com/producer"
SCHEMA_URL = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
TABLES = [
    *("dataset_names", "aliases", "jobs", "runs", "run_facets", "facets", "job_datasets", "run_datasets"),
    *("schemas", "versions", "fields", "columns", "edges", "last_statements"),
    *("link_statements", "separations"),
]


def at(minute: int) -> str:
    """A time, so many minutes after some moment."""
    return f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"


def run_id(number: int) -> str:
    return str(uuid.UUID(int=number))


def facet(**content: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": SCHEMA_URL, **content}


def schema(**types: str) -> dict[str, Any]:
    return facet(fields=[{"name": name, "type": kind} for name, kind in types.items()])


def symlinks(*names: tuple[str, str]) -> dict[str, Any]:
    return facet(identifiers=[{"namespace": space, "name": name, "type": "TABLE"} for space, name in names])


def source(
    name: str, field: str, type: str = "DIRECT", subtype: str = "IDENTITY", **more: Any
) -> dict[str, Any]:
    return {
        "namespace": "db",
        "name": name,
        "field": field,
        "transformations": [{"type": type, "subtype": subtype, "masking": False} | more],
    }


def column_lineage(
    whole: Sequence[dict[str, Any]] = (), **fields: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    return facet(
        fields={name: {"inputFields": list(sources)} for name, sources in fields.items()}, dataset=list(whole)
    )


def dataset(
    name: str, namespace: str = "db", extra: dict[str, Any] | None = None, **facets: Any
) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "facets": facets} | (extra or {})


def run_event(
    kind: str = "COMPLETE",
    *,
    minute: int = 0,
    run: int = 1,
    job: str = "job",
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    run_facets: dict[str, Any] | None = None,
    job_facets: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A run event; datasets may be given by their names alone."""
    return {
        "eventType": kind,
        "eventTime": at(minute),
        "producer": PRODUCER,
        "schemaURL": SCHEMA_URL,
        "run": {"runId": run_id(run), "facets": run_facets or {}},
        "job": {"namespace": "jobs", "name": job, "facets": job_facets or {}},
        "inputs": [dataset(item) if isinstance(item, str) else item for item in inputs],
        "outputs": [dataset(item) if isinstance(item, str) else item for item in outputs],
    }


def flow(job: str, inputs: Sequence[Any], outputs: Sequence[Any], *, minute: int = 0) -> dict[str, Any]:
    """One complete run of a job."""
    return run_event(
        minute=minute, run=crc32(f"{job} {minute}".encode()), job=job, inputs=inputs, outputs=outputs
    )


def dataset_event(item: dict[str, Any], minute: int = 0) -> dict[str, Any]:
    return {"eventTime": at(minute), "producer": PRODUCER, "schemaURL": SCHEMA_URL, "dataset": item}


def encoded(events: Iterable[Any]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def graph_of(folder: Path, events: Iterable[Any], settings: GraphSettings | None = None) -> GraphQuery:
    """A query on the graph of these events."""
    graph = GraphDatabase(folder, settings, durable=False)
    try:
        graph.ingest(encoded(events))
    finally:
        graph.close()
    return GraphQuery(folder)


def content(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the graph, with runs identified by their UUID instead of their number."""
    connection = apsw.Connection(str(folder / FILE), flags=apsw.SQLITE_OPEN_READONLY)
    uuids = {row[0]: row[1] for row in connection.execute("SELECT id, uuid FROM runs").fetchall()}
    found = {}
    for table in TABLES:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        if table in ("runs", "run_facets", "run_datasets"):
            rows = [(uuids[row[0]], *row[1:]) for row in rows]
        found[table] = sorted(rows, key=repr)
    connection.close()
    return found
