"""Nodes: the datasets and jobs of an answer, loaded together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import orjson

from headwater.graph.ingest.facet_parsers import Field, unpack
from headwater.graph.ingest.untrusted_json import iso
from headwater.graph.query.answers import Column, DatasetNode, JobNode, key_of_dataset, key_of_job
from headwater.graph.store.ids import WHOLE
from headwater.graph.store.run_facts import Direction, State
from headwater.log.queue.sqlite import select

__all__ = ["as_columns", "columns_of", "dataset_nodes", "job_nodes", "rows_for", "state_name"]

MAX_COLUMNS = 300  # of one dataset in a graph; its own view has all of them


def rows_for(
    connection: apsw.Connection, sql: str, ids: Iterable[Any], *values: Any
) -> list[tuple[Any, ...]]:
    """The rows of a query whose first argument is read by `json_each(?1)`: many ids, one statement.

    CROSS JOIN behind it keeps SQLite from beginning with a table, all of which it would read then.
    """
    return select(connection, sql, orjson.dumps(list(ids)).decode(), *values)


def state_name(level: int, state: int) -> str:
    """The state of a run in a word."""
    return "NEW" if level <= 0 else "RUNNING" if level == 1 else State(state).name


_DATASETS = (
    "SELECT n.id, n.namespace, n.name, n.last_at FROM json_each(?1) CROSS JOIN names n ON n.id = value"
)
_USERS = (
    "SELECT n.dataset, io.direction, count(DISTINCT io.job) FROM json_each(?1)"
    " CROSS JOIN names n ON n.dataset = value JOIN io ON io.name = n.id GROUP BY n.dataset, io.direction"
)
_JOBS = (
    "SELECT j.id, j.namespace, j.name, j.last_at, r.level, r.state FROM json_each(?1)"
    " CROSS JOIN jobs j ON j.id = value LEFT JOIN runs r ON r.id ="
    " (SELECT id FROM runs WHERE job = j.id ORDER BY last_at DESC, uuid DESC LIMIT 1)"
)


def dataset_nodes(
    connection: apsw.Connection, distances: dict[int, int], *, columns: bool = False
) -> list[DatasetNode]:
    """The datasets of these ids, nearest first."""
    found = {
        id: DatasetNode(key_of_dataset(id), namespace, name, distances[id], iso(last_at))
        for id, namespace, name, last_at in rows_for(connection, _DATASETS, distances)
    }
    for id, direction, count in rows_for(connection, _USERS, distances):
        if direction == Direction.INPUT:
            found[id].readers = count
        else:
            found[id].writers = count
    if columns:
        for id, known in columns_of(connection, found).items():
            found[id].columns = known[:MAX_COLUMNS]
            found[id].columns_omitted = max(0, len(known) - MAX_COLUMNS)
    return sorted(found.values(), key=lambda node: (abs(node.distance), node.namespace, node.name))


def job_nodes(connection: apsw.Connection, ids: Iterable[int]) -> list[JobNode]:
    """The jobs of these ids, by name."""
    found = [
        JobNode(
            key_of_job(id), namespace, name, "" if level is None else state_name(level, state), iso(last_at)
        )
        for id, namespace, name, last_at, level, state in rows_for(connection, _JOBS, ids)
    ]
    return sorted(found, key=lambda node: (node.namespace, node.name))


# The schema that a writer told last; where none has, the one that a reader told last.
_SCHEMAS = (
    "SELECT dataset, fields FROM (SELECT n.dataset AS dataset, v.schema AS schema,"
    " row_number() OVER (PARTITION BY n.dataset"
    " ORDER BY v.written_at DESC, v.last_at DESC, v.schema DESC) AS n"
    " FROM json_each(?1) CROSS JOIN names n ON n.dataset = value JOIN versions v ON v.name = n.id)"
    " JOIN schemas ON schemas.id = schema WHERE n = 1"
)
_MENTIONED = (
    "SELECT DISTINCT n.dataset, f.text FROM json_each(?1) CROSS JOIN names n ON n.dataset = value"
    " JOIN columns c ON c.name = n.id AND c.field != ?2 JOIN fields f ON f.id = c.field"
    " WHERE EXISTS (SELECT 1 FROM edges WHERE target = c.id)"
    " OR EXISTS (SELECT 1 FROM edges WHERE source = c.id)"
    " ORDER BY f.text"
)


def columns_of(connection: apsw.Connection, ids: Iterable[int]) -> dict[int, list[Column]]:
    """The columns of datasets: of the current schema in its order, then those that only lineage mentions."""
    ids = list(ids)
    found: dict[int, list[Column]] = {id: [] for id in ids}
    for id, fields in rows_for(connection, _SCHEMAS, ids):
        found[id] = as_columns(unpack(fields))
    known = {id: {column.name for column in columns} for id, columns in found.items()}
    for id, text in rows_for(connection, _MENTIONED, ids, WHOLE):
        if text not in known[id]:
            found[id].append(Column(text))
    return found


def as_columns(fields: Sequence[Field]) -> list[Column]:
    return [Column(field.name, field.type, field.description) for field in fields]
