"""Deletes rows that are too old or too many, a bounded piece at a time.

Age is counted from the newest event where that is older than today, so an import of last year's events stays,
and an event dated in the future ages nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from headwater.log.queue.sqlite import select
from headwater.settings import GraphSettings

PIECE = 2_000  # rows of one transaction, so that neither readers nor the follower wait long
DAY = 86_400_000_000  # microseconds
_NEWEST = (
    "SELECT max(last_at) FROM"
    " (SELECT max(last_at) AS last_at FROM jobs UNION ALL SELECT max(last_at) FROM names)"
)


def clean_up(connection: apsw.Connection, settings: GraphSettings, now: int) -> Iterator[int]:
    """Remove a piece at each step, each in one transaction; yields how many rows were removed."""
    newest = select(connection, _NEWEST)[0][0]
    if newest is None:
        return
    cutoff = min(now, int(newest)) - int(settings.retention_days * DAY)
    old_runs = "SELECT id FROM runs WHERE last_at < ?1 LIMIT ?2"
    yield from _runs(connection, old_runs, cutoff)
    surplus = (
        "SELECT id FROM (SELECT id, row_number() OVER"
        " (PARTITION BY job ORDER BY last_at DESC, uuid DESC) AS n FROM runs"
        " WHERE job IN (SELECT job FROM runs GROUP BY job HAVING count(*) > ?1)) WHERE n > ?1 LIMIT ?2"
    )
    yield from _runs(connection, surplus, settings.max_runs_per_job)
    for table, key in (
        ("edges", "target, source, job, type, subtype, masking"),
        ("io", "job, direction, name"),
    ):
        yield from _rows(connection, table, key, "last_at < ?1", cutoff)
    yield from _versions(connection, settings.max_schema_versions, cutoff)
    yield from _names(connection, cutoff)
    yield from _jobs(connection, cutoff)
    yield from _orphans(connection)


def _runs(connection: apsw.Connection, query: str, limit: int) -> Iterator[int]:
    while True:
        ids = [(id,) for (id,) in select(connection, query, limit, PIECE)]
        if not ids:
            return
        with connection:
            for statement in (
                "DELETE FROM run_facets WHERE run = ?",
                "DELETE FROM run_io WHERE run = ?",
                "DELETE FROM runs WHERE id = ?",
            ):
                connection.executemany(statement, ids)
        yield len(ids)


def _rows(connection: apsw.Connection, table: str, key: str, where: str, limit: int) -> Iterator[int]:
    query = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {where} LIMIT ?2)"  # noqa: S608
    while True:
        with connection:
            connection.execute(query, (limit, PIECE))
            count = connection.changes()
        if not count:
            return
        yield count


def _versions(connection: apsw.Connection, most: int, cutoff: int) -> Iterator[int]:
    """Schemas that are old, or beyond the limit; never the latest of a name."""
    query = (
        "DELETE FROM versions WHERE (name, schema) IN (SELECT name, schema FROM"
        " (SELECT name, schema, last_at, row_number()"
        " OVER (PARTITION BY name ORDER BY written_at DESC, last_at DESC, schema DESC) AS n"
        " FROM versions) WHERE n > ?1 OR (n > 1 AND last_at < ?2))"
    )
    with connection:
        connection.execute(query, (most, cutoff))
        count = connection.changes()
    if count:
        yield count


def _names(connection: apsw.Connection, cutoff: int) -> Iterator[int]:
    """Datasets none of whose names was mentioned since."""
    query = "SELECT dataset FROM names GROUP BY dataset HAVING max(last_at) < ?1 LIMIT ?2"
    while True:
        datasets = [dataset for (dataset,) in select(connection, query, cutoff, PIECE)]
        if not datasets:
            return
        with connection:
            ids = [
                row
                for dataset in datasets
                for row in select(connection, "SELECT id FROM names WHERE dataset = ?", dataset)
            ]
            for statement in (
                "DELETE FROM facets WHERE owner = ?",
                "DELETE FROM links WHERE owner = ?",
                "DELETE FROM links WHERE target = ?",
                "DELETE FROM versions WHERE name = ?",
                "DELETE FROM io WHERE name = ?",
                "DELETE FROM run_io WHERE name = ?",
                "DELETE FROM reports WHERE name = ?",
                "DELETE FROM edges WHERE target IN (SELECT id FROM columns WHERE name = ?)",
                "DELETE FROM edges WHERE source IN (SELECT id FROM columns WHERE name = ?)",
                "DELETE FROM columns WHERE name = ?",
                "DELETE FROM search WHERE rowid = ?",
                "DELETE FROM names WHERE id = ?",
            ):
                connection.executemany(statement, ids)
        yield len(ids)


def _jobs(connection: apsw.Connection, cutoff: int) -> Iterator[int]:
    query = "SELECT id FROM jobs WHERE last_at < ?1 LIMIT ?2"
    while True:
        ids = [(id,) for (id,) in select(connection, query, cutoff, PIECE)]
        if not ids:
            return
        with connection:
            for statement in (
                "DELETE FROM facets WHERE owner = ?",
                "DELETE FROM io WHERE job = ?",
                "DELETE FROM reports WHERE job = ?",
                "DELETE FROM search WHERE rowid = ?",
                "DELETE FROM jobs WHERE id = ?",
            ):
                connection.executemany(statement, ids)
        yield len(ids)


def _orphans(connection: apsw.Connection) -> Iterator[int]:
    """Schemas and fields without a dataset."""
    with connection:
        connection.execute("DELETE FROM schemas WHERE id NOT IN (SELECT schema FROM versions)")
        count = connection.changes()
        connection.execute(
            "DELETE FROM search WHERE rowid IN (SELECT id FROM fields f"
            " WHERE NOT EXISTS (SELECT 1 FROM columns WHERE field = f.id))"
        )
        connection.execute(
            "DELETE FROM fields WHERE NOT EXISTS (SELECT 1 FROM columns WHERE field = fields.id)"
        )
        count += connection.changes()
    if count:
        yield count
