"""Deletes rows that are too old or too many: runs, edges, datasets and jobs in bounded pieces.

Age is counted from the newest event if that is older than today, so an import of last year's events stays,
and an event dated in the future ages nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from headwater.graph.store.schema import DAY
from headwater.log.queue.sqlite import select
from headwater.settings import GraphSettings

PIECE = 2_000  # rows of one transaction, so that neither readers nor the follower wait long

_NEWEST = (
    "SELECT max(last_at) FROM"
    " (SELECT max(last_at) AS last_at FROM jobs UNION ALL SELECT max(last_at) FROM dataset_names)"
)

# Queries of the keys to delete, with a limit ?1 of time or number and at most ?2 rows.
_OLD_RUNS = "SELECT id FROM runs WHERE last_at < ?1 LIMIT ?2"
_SURPLUS_RUNS = (
    "SELECT id FROM (SELECT id, row_number() OVER"
    " (PARTITION BY job ORDER BY last_at DESC, uuid DESC) AS n FROM runs"
    " WHERE job IN (SELECT job FROM runs GROUP BY job HAVING count(*) > ?1)) WHERE n > ?1 LIMIT ?2"
)
_OLD_EDGES = "SELECT target, source, job, type, subtype, masking FROM edges WHERE last_at < ?1 LIMIT ?2"
_OLD_JOB_DATASETS = "SELECT job, direction, name FROM job_datasets WHERE last_at < ?1 LIMIT ?2"
# All names of datasets that no event has mentioned since ?1 under any name.
_OLD_NAMES = (
    "SELECT id FROM dataset_names WHERE dataset IN"
    " (SELECT dataset FROM dataset_names GROUP BY dataset HAVING max(last_at) < ?1 LIMIT ?2)"
)
_OLD_JOBS = "SELECT id FROM jobs WHERE last_at < ?1 LIMIT ?2"

# The statements that delete each key.
_RUN = (
    "DELETE FROM run_facets WHERE run = ?",
    "DELETE FROM run_datasets WHERE run = ?",
    "DELETE FROM runs WHERE id = ?",
)
_EDGE = ("DELETE FROM edges WHERE (target, source, job, type, subtype, masking) = (?, ?, ?, ?, ?, ?)",)
_JOB_DATASET = ("DELETE FROM job_datasets WHERE (job, direction, name) = (?, ?, ?)",)
_NAME = (
    "DELETE FROM facets WHERE owner = ?",
    "DELETE FROM aliases WHERE owner = ?",
    "DELETE FROM link_statements WHERE owner = ?",
    "DELETE FROM aliases WHERE target = ?",
    "DELETE FROM versions WHERE name = ?",
    "DELETE FROM job_datasets WHERE name = ?",
    "DELETE FROM run_datasets WHERE name = ?",
    "DELETE FROM last_statements WHERE name = ?",
    "DELETE FROM edges WHERE target IN (SELECT id FROM columns WHERE name = ?)",
    "DELETE FROM edges WHERE source IN (SELECT id FROM columns WHERE name = ?)",
    "DELETE FROM columns WHERE name = ?",
    "DELETE FROM search WHERE rowid = ?",
    "DELETE FROM dataset_names WHERE id = ?",
)
_JOB = (
    "DELETE FROM facets WHERE owner = ?",
    "DELETE FROM job_datasets WHERE job = ?",
    "DELETE FROM last_statements WHERE job = ?",
    "DELETE FROM search WHERE rowid = ?",
    "DELETE FROM jobs WHERE id = ?",
)

# Schemas of a name that are old (?1), or beyond the limit (?2); never the latest.
_SURPLUS_VERSIONS = (
    "DELETE FROM versions WHERE (name, schema) IN (SELECT name, schema FROM"
    " (SELECT name, schema, last_at, row_number()"
    " OVER (PARTITION BY name ORDER BY written_at DESC, last_at DESC, schema DESC) AS n"
    " FROM versions) WHERE n > ?2 OR (n > 1 AND last_at < ?1))"
)
# Schemas and fields without a dataset.
_UNUSED = (
    "DELETE FROM schemas WHERE id NOT IN (SELECT schema FROM versions)",
    "DELETE FROM search WHERE rowid IN (SELECT id FROM fields f"
    " WHERE NOT EXISTS (SELECT 1 FROM columns WHERE field = f.id))",
    "DELETE FROM fields WHERE NOT EXISTS (SELECT 1 FROM columns WHERE field = fields.id)",
)


def clean_up(connection: apsw.Connection, settings: GraphSettings, now: int) -> Iterator[int]:
    """Remove old and surplus rows, each step in one transaction; yields how many rows it removed."""
    newest = select(connection, _NEWEST)[0][0]
    if newest is None:
        return
    cutoff = min(now, int(newest)) - int(settings.retention_days * DAY)
    yield from _delete(connection, _OLD_RUNS, cutoff, _RUN)
    yield from _delete(connection, _SURPLUS_RUNS, settings.max_runs_per_job, _RUN)
    yield from _delete(connection, _OLD_EDGES, cutoff, _EDGE)
    yield from _delete(connection, _OLD_JOB_DATASETS, cutoff, _JOB_DATASET)
    with connection:
        connection.execute(_SURPLUS_VERSIONS, (cutoff, settings.max_schema_versions))
        count = connection.changes()
    yield count
    yield from _delete(connection, _OLD_NAMES, cutoff, _NAME)
    yield from _delete(connection, _OLD_JOBS, cutoff, _JOB)
    for statement in _UNUSED:
        with connection:
            connection.execute(statement)
            count = connection.changes()
        yield count


def _delete(
    connection: apsw.Connection, query: str, limit: int, statements: tuple[str, ...]
) -> Iterator[int]:
    while keys := select(connection, query, limit, PIECE):
        with connection:
            for statement in statements:
                connection.executemany(statement, keys)
        yield len(keys)
