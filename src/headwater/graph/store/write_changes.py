"""Writing a batch: each table takes over what is earlier, later, or new, and nothing else.

The statements are what makes folding indifferent to order and repetition; merging in memory (`batch`) follows
the same rules and only saves work.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.graph.ingest.event_parser import Batch
from headwater.graph.store.ids import Kind, kind_of

__all__ = ["write"]

_NEW_NAME = (
    "INSERT INTO names(id, namespace, name, dataset, first_at, last_at) VALUES (?1, ?2, ?3, ?1, ?4, ?5)"
    " ON CONFLICT DO NOTHING RETURNING id"
)
_NEW_JOB = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"
_SEEN_NAME = "UPDATE names SET first_at = min(first_at, ?), last_at = max(last_at, ?) WHERE id = ?"
_SEEN_JOB = "UPDATE jobs SET first_at = min(first_at, ?), last_at = max(last_at, ?) WHERE id = ?"
_NEW_FIELD = "INSERT INTO fields VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id"
_NEW_COLUMN = "INSERT INTO columns VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_SEARCHABLE = "INSERT INTO search(rowid, text) VALUES (?, ?)"
_SCHEMA = "INSERT INTO schemas VALUES (?, ?) ON CONFLICT DO NOTHING"
_RUN = (
    "INSERT INTO runs(uuid, job, job_at, level, state_at, state, first_at, last_at, started_at,"
    " parent_at, parent, parent_job, root, root_job)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT(uuid) DO UPDATE SET"
    " (job_at, job) = (SELECT CASE WHEN (excluded.job_at, excluded.job) > (job_at, job)"
    "   THEN excluded.job_at ELSE job_at END, CASE WHEN (excluded.job_at, excluded.job) > (job_at, job)"
    "   THEN excluded.job ELSE job END),"
    " level = iif((excluded.level, excluded.state_at, excluded.state) > (level, state_at, state),"
    "   excluded.level, level),"
    " state_at = iif((excluded.level, excluded.state_at, excluded.state) > (level, state_at, state),"
    "   excluded.state_at, state_at),"
    " state = iif((excluded.level, excluded.state_at, excluded.state) > (level, state_at, state),"
    "   excluded.state, state),"
    " first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at),"
    " started_at = min(coalesce(started_at, excluded.started_at), coalesce(excluded.started_at, started_at)),"
    " parent_at = {later}parent_at, parent_at), parent = {later}parent, parent),"
    " parent_job = {later}parent_job, parent_job), root = {later}root, root),"
    " root_job = {later}root_job, root_job)"
    " RETURNING id"
).replace(
    "{later}",
    "iif((excluded.parent_at, excluded.parent, excluded.parent_job, excluded.root, excluded.root_job)"
    " > (parent_at, parent, parent_job, root, root_job), excluded.",
)
_LATEST = (
    " DO UPDATE SET at = excluded.at, deleted = excluded.deleted, value = excluded.value"
    " WHERE (excluded.at, excluded.deleted, excluded.value) > (at, deleted, value)"
)
_RUN_FACET = f"INSERT INTO run_facets VALUES (?, ?, ?, ?, ?) ON CONFLICT(run, key){_LATEST}"  # noqa: S608
_FACET = f"INSERT INTO facets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(owner, container, key){_LATEST}"  # noqa: S608
_WIDER = (
    " DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)"
)
_IO = f"INSERT INTO io VALUES (?, ?, ?, ?, ?) ON CONFLICT(job, direction, name){_WIDER}"  # noqa: S608
_RUN_IO = (
    "INSERT INTO run_io VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(run, direction, name) DO UPDATE SET"
    " at = max(at, excluded.at), told_at = {later}told_at, told_at), rows = {later}rows, rows),"
    " bytes = {later}bytes, bytes), files = {later}files, files)"
).replace(
    "{later}",
    "iif((excluded.told_at, excluded.rows, excluded.bytes, excluded.files) > (told_at, rows, bytes, files),"
    " excluded.",
)
_VERSION = (
    f"INSERT INTO versions VALUES (?, ?, ?, ?, ?) ON CONFLICT(name, schema){_WIDER},"  # noqa: S608
    " written_at = max(written_at, excluded.written_at)"
)
_EDGE = (
    "INSERT INTO edges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
    f" ON CONFLICT(target, source, job, type, subtype, masking){_WIDER},"
    " description = iif((excluded.last_at, excluded.description) > (last_at, description),"
    " excluded.description, description)"
)
_REPORT = (
    "INSERT INTO reports(name, job, kind, at, run) VALUES (?, ?, ?, ?, ?) ON CONFLICT(name, job, kind)"
    " DO UPDATE SET at = excluded.at, run = excluded.run WHERE (excluded.at, excluded.run) > (at, run)"
)


def write(connection: apsw.Connection, batch: Batch, known: set[int]) -> None:
    """Write all of it; the caller has begun the transaction.

    `known` are ids that are in the tables for sure; those that are written are added to it.
    """
    _write_names(connection, batch, known)
    new = [(id, *column) for id, column in batch.columns.items() if id not in known]
    connection.executemany(_NEW_COLUMN, new)
    known.update(batch.columns)
    connection.executemany(_SCHEMA, batch.schemas.items())
    _write_runs(connection, batch)
    connection.executemany(_FACET, ((*key, *told) for key, told in batch.facets.items()))
    connection.executemany(_IO, ((*key, *span) for key, span in batch.io.items()))
    connection.executemany(_VERSION, ((*key, *span) for key, span in batch.versions.items()))
    # sorted: neighbours in the tree are written one after the other
    connection.executemany(_EDGE, sorted((*key, *span) for key, span in batch.edges.items()))
    connection.executemany(_REPORT, ((*key, *told) for key, told in batch.reports.items()))


def _write_names(connection: apsw.Connection, batch: Batch, known: set[int]) -> None:
    for statement, table in ((_NEW_NAME, batch.names), (_NEW_JOB, batch.jobs)):
        new = [(id, *pair, *batch.spans[id]) for id, pair in table.items() if id not in known]
        made = [id for (id,) in connection.executemany(statement, new)]
        _make_searchable(connection, ((id, "\n".join(table[id])) for id in made))
        known.update(table)
    names = [(*span, id) for id, span in batch.spans.items() if kind_of(id) is Kind.DATASET]
    jobs = [(*span, id) for id, span in batch.spans.items() if kind_of(id) is Kind.JOB]
    connection.executemany(_SEEN_NAME, names)
    connection.executemany(_SEEN_JOB, jobs)
    new_fields = [(id, field) for id, field in batch.fields.items() if id not in known]
    made = [id for (id,) in connection.executemany(_NEW_FIELD, new_fields)]
    _make_searchable(connection, ((id, batch.fields[id]) for id in made))
    known.update(batch.fields)


def _make_searchable(connection: apsw.Connection, texts: Iterable[tuple[int, str]]) -> None:
    connection.executemany(_SEARCHABLE, texts)


def _write_runs(connection: apsw.Connection, batch: Batch) -> None:
    if not batch.runs:
        return
    rows = (
        (
            uuid,
            run.job[1],
            run.job[0],
            *run.state,
            run.first_at,
            run.last_at,
            run.started_at,
            *run.parent,
        )
        for uuid, run in batch.runs.items()
    )
    ids = dict(zip(batch.runs, (id for (id,) in connection.executemany(_RUN, rows)), strict=True))
    connection.executemany(
        _RUN_FACET, ((ids[uuid], key, *told) for (uuid, key), told in batch.run_facets.items())
    )
    connection.executemany(
        _RUN_IO,
        (
            (ids[uuid], direction, name, at, *statistics)
            for (uuid, direction, name), (at, statistics) in batch.run_io.items()
        ),
    )
