"""Deletes rows that are too old or too many: runs, edges, datasets and jobs in bounded pieces.

Age is counted from the newest event if that is older than today, so an import of last year's events stays,
and an event dated in the future ages nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import orjson

from headwater.graph.store.schema import DAY
from headwater.log.queue.sqlite import select
from headwater.settings import GraphSettings

MIN_ID = -(2**63)
PIECE = 2_000  # rows of one transaction, so that neither readers nor the follower wait long

_NEWEST = (
    "SELECT max(last_at) FROM"
    " (SELECT max(last_at) AS last_at FROM jobs UNION ALL SELECT max(last_at) FROM dataset_names)"
)

# Queries of the keys to delete, with a limit ?1 of time or number and at most ?2 rows.
_OLD_RUNS = "SELECT id FROM runs WHERE last_at < ?1 LIMIT ?2"
_OLD_EDGES = "SELECT target, source, job, type, subtype, masking FROM edges WHERE last_at < ?1 LIMIT ?2"
_OLD_JOB_DATASETS = "SELECT job, direction, name FROM job_datasets WHERE last_at < ?1 LIMIT ?2"
# All names of datasets that no event has mentioned since ?1 under any name.
_OLD_NAMES = (
    "SELECT id FROM dataset_names WHERE dataset IN"
    " (SELECT dataset FROM dataset_names GROUP BY dataset HAVING max(last_at) < ?1 LIMIT ?2)"
)
_OLD_JOBS = "SELECT id FROM jobs WHERE last_at < ?1 LIMIT ?2"

# The statements that delete each key.
# What a run stated stays current since its first event, also when the run is gone.
_KEEP_SINCE = (
    "UPDATE last_statements SET at = min(at, (SELECT first_at FROM runs WHERE uuid = run))"
    " WHERE job IN (SELECT r.job FROM json_each(?1) AS j CROSS JOIN runs r ON r.id = j.value)"
    " AND run IN (SELECT r.uuid FROM json_each(?1) AS j CROSS JOIN runs r ON r.id = j.value)"
)
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

# Jobs after ?1 with more than ?2 runs, and the surplus runs of one.
_JOBS_WITH_SURPLUS = "SELECT job FROM runs WHERE job > ?1 GROUP BY job HAVING count(*) > ?2 LIMIT ?3"
_SURPLUS_RUNS = "SELECT id FROM runs WHERE job = ?1 ORDER BY last_at DESC, uuid DESC LIMIT ?3 OFFSET ?2"
# The next names after ?1 with several schemas. Those that are old (?2), or beyond the limit (?3), go; never
# the latest one.
_NAMES_WITH_VERSIONS = "SELECT name FROM versions WHERE name > ?1 GROUP BY name HAVING count(*) > 1 LIMIT ?2"
_SURPLUS_VERSIONS = (
    "DELETE FROM versions WHERE (name, schema) IN (SELECT name, schema FROM"
    " (SELECT name, schema, last_at, row_number()"
    " OVER (PARTITION BY name ORDER BY written_at DESC, last_at DESC, schema DESC) AS n"
    " FROM versions WHERE name IN (SELECT value FROM json_each(?1)))"
    " WHERE n > ?3 OR (n > 1 AND last_at < ?2))"
)
# The next schemas and fields after ?1, and of those the ones that no dataset has.
_SCHEMAS = "SELECT id FROM schemas WHERE id > ?1 ORDER BY id LIMIT ?2"
_UNUSED_SCHEMA = (
    "DELETE FROM schemas WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM versions WHERE schema = ?1)",
)
_FIELDS = "SELECT id FROM fields WHERE id > ?1 ORDER BY id LIMIT ?2"
_UNUSED_FIELD = (
    "DELETE FROM search WHERE rowid = ?1 AND NOT EXISTS (SELECT 1 FROM columns WHERE field = ?1)",
    "DELETE FROM fields WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM columns WHERE field = ?1)",
)


def clean_up(connection: apsw.Connection, settings: GraphSettings, now: int) -> Iterator[int]:
    """Remove old and surplus rows, each step in one transaction; yields how many rows it removed."""
    newest = select(connection, _NEWEST)[0][0]
    if newest is None:
        return
    cutoff = min(now, int(newest)) - int(settings.retention_days * DAY)
    yield from _delete_runs(connection, _OLD_RUNS, cutoff)
    yield from _delete_surplus_runs(connection, settings.max_runs_per_job)
    yield from _delete(connection, _OLD_EDGES, cutoff, _EDGE)
    yield from _delete(connection, _OLD_JOB_DATASETS, cutoff, _JOB_DATASET)
    yield from _delete_surplus_versions(connection, cutoff, settings.max_schema_versions)
    yield from _delete(connection, _OLD_NAMES, cutoff, _NAME)
    yield from _delete(connection, _OLD_JOBS, cutoff, _JOB)
    yield from _delete_unused(connection, _SCHEMAS, b"", _UNUSED_SCHEMA)
    yield from _delete_unused(connection, _FIELDS, MIN_ID, _UNUSED_FIELD)


def _delete(
    connection: apsw.Connection, query: str, limit: int, statements: tuple[str, ...]
) -> Iterator[int]:
    while keys := select(connection, query, limit, PIECE):
        with connection:
            for statement in statements:
                connection.executemany(statement, keys)
        yield len(keys)


def _delete_surplus_runs(connection: apsw.Connection, most: int) -> Iterator[int]:
    last = MIN_ID
    while jobs := select(connection, _JOBS_WITH_SURPLUS, last, most, PIECE):
        for (last,) in jobs:
            yield from _delete_runs(connection, _SURPLUS_RUNS, last, most)


def _delete_runs(connection: apsw.Connection, query: str, *values: int) -> Iterator[int]:
    while keys := select(connection, query, *values, PIECE):
        with connection:
            connection.execute(_KEEP_SINCE, (orjson.dumps([id for (id,) in keys]).decode(),))
            for statement in _RUN:
                connection.executemany(statement, keys)
        yield len(keys)


def _delete_surplus_versions(connection: apsw.Connection, cutoff: int, most: int) -> Iterator[int]:
    last = MIN_ID
    while names := select(connection, _NAMES_WITH_VERSIONS, last, PIECE):
        last = names[-1][0]
        with connection:
            values = orjson.dumps([name for (name,) in names]).decode()
            connection.execute(_SURPLUS_VERSIONS, (values, cutoff, most))
            count = connection.changes()
        yield count


def _delete_unused(
    connection: apsw.Connection, query: str, first: object, statements: tuple[str, ...]
) -> Iterator[int]:
    """Look at all rows in the order of their ids, and delete those without a use."""
    last = first
    while keys := select(connection, query, last, PIECE):
        last = keys[-1][0]
        count = 0
        with connection:
            for statement in statements:
                before = connection.total_changes()
                connection.executemany(statement, keys)
                count = connection.total_changes() - before
        yield count
