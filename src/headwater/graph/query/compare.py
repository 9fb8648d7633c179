"""What of the lineage of a dataset was there at one moment, and not at another.

An edge is there from its first report until a later run of its job reports the columns of the dataset
without it.
"""

from __future__ import annotations

from typing import Any, Literal

import apsw
import msgspec

from headwater.graph.ingest.untrusted_json import iso
from headwater.graph.query.answers import JobNode, Name, key_of_job
from headwater.graph.query.details import job_nodes
from headwater.graph.store.database import rows_for
from headwater.graph.store.schema import Statement
from headwater.log.queue.sqlite import select

MAX_EDGES = 20_000

_EDGES = (
    "SELECT s.namespace, s.name, sf.text, t.namespace, t.name, tf.text, e.job, e.type, e.subtype,"
    " min(e.first_at), max(e.last_at), max(e.last_at >= coalesce(r.first_at, p.at, 0))"
    " FROM json_each(?1) AS j CROSS JOIN dataset_names n ON n.dataset = j.value"
    " JOIN columns own ON own.name = n.id JOIN edges e ON e.{own} = own.id"
    " JOIN columns d ON d.id = e.source JOIN dataset_names sn ON sn.id = d.name"
    " JOIN dataset_names s ON s.id = sn.dataset LEFT JOIN fields sf ON sf.id = d.field"
    " JOIN columns c ON c.id = e.target JOIN dataset_names tn ON tn.id = c.name"
    " JOIN dataset_names t ON t.id = tn.dataset LEFT JOIN fields tf ON tf.id = c.field"
    " LEFT JOIN last_statements p ON p.name = tn.id AND p.job = e.job AND p.kind = ?2"
    " LEFT JOIN runs r ON r.uuid = p.run GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 LIMIT ?3"
)


class EdgeChange(msgspec.Struct, frozen=True):
    """An edge that was added or removed between two moments, with the times of its reports."""

    kind: Literal["added", "removed"]
    direction: Literal["up", "down"]
    source: Name
    source_column: str | None
    target: Name
    target_column: str | None
    type: str
    job: JobNode | None
    first_at: str | None
    last_at: str | None


class Comparison(msgspec.Struct):
    """The edges at a dataset that two moments do not share, and the number of those that they do."""

    changes: list[EdgeChange]
    unchanged: int
    truncated: bool


def compare(connection: apsw.Connection, dataset: int, before: int, after: int) -> Comparison:
    """The changes of the edges at a dataset's columns from one moment to another, in microseconds."""
    found: list[tuple[Literal["added", "removed"], Literal["up", "down"], tuple[Any, ...]]] = []
    unchanged = 0
    truncated = False
    for direction, own in (("up", "target"), ("down", "source")):
        rows = rows_for(connection, _EDGES.format(own=own), [dataset], int(Statement.COLUMNS), MAX_EDGES)
        truncated |= len(rows) >= MAX_EDGES
        for row in rows:
            first_at, last_at, is_current = row[9:12]
            until = None if is_current else _next_run(connection, row[6], last_at)
            was, is_there = (first_at <= at and (until is None or at < until) for at in (before, after))
            unchanged += was and is_there
            if was != is_there:
                found.append(("removed" if was else "added", direction, row))  # type: ignore[arg-type]
    jobs = {node.key: node for node in job_nodes(connection, {row[6] for *_, row in found})}
    changes = [_change(kind, direction, row, jobs) for kind, direction, row in found]
    changes.sort(
        key=lambda edge: (edge.direction == "down", edge.kind, edge.target_column or "", edge.source.name)
    )
    return Comparison(changes, unchanged, truncated)


def _next_run(connection: apsw.Connection, job: int, at: int) -> int:
    """When the job ran without reporting an edge again; its last report, if no later run is known."""
    query = "SELECT min(last_at) FROM runs WHERE job = ? AND last_at > ?"
    found = select(connection, query, job, at)[0][0]
    return int(found) if found is not None else at + 1


def _change(
    kind: Literal["added", "removed"],
    direction: Literal["up", "down"],
    row: tuple[Any, ...],
    jobs: dict[str, JobNode],
) -> EdgeChange:
    job, type, subtype, first_at, last_at, _ = row[6:]
    return EdgeChange(
        kind,
        direction,
        Name(*row[:2]),
        row[2],
        Name(*row[3:5]),
        row[5],
        subtype or type,
        jobs.get(key_of_job(job)),
        iso(first_at),
        iso(last_at),
    )
