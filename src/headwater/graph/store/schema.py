"""The tables of the graph as numbered migrations, and the codes in their columns.

Every row holds its facts in a form that does not depend on the order of the events (`merge_rules`). Ingesting
an event again, or late, changes nothing that a later event said.

Facts are stored under the name that the event used. `dataset_names.dataset` groups names into datasets, so
a symlink that arrives later moves no rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import apsw
import orjson

from headwater.graph.store.ids import dataset_id

NO_JOB_ID = 0  # in place of a job: a DatasetEvent has none


class State(IntEnum):
    """The state of a run; the order decides between events of the same moment."""

    OTHER = 0
    START = 1
    RUNNING = 2
    COMPLETE = 3
    ABORT = 4
    FAIL = 5

    @property
    def level(self) -> int:
        """0 unknown, 1 running, 2 ended: a run that ended stays ended, even if a later START arrives."""
        return 0 if self is State.OTHER else 1 if self <= State.RUNNING else 2


class Direction(IntEnum):
    """How a job uses a dataset."""

    INPUT = 1
    OUTPUT = 2


class Statement(IntEnum):
    """The kinds of complete statements of a job in the table `last_statements`."""

    COLUMNS = 1  # the columns of a dataset, by `columnLineage`
    LINEAGE = 2  # the sources of a dataset, by `lineage`
    INPUTS = 3  # the datasets that it reads
    OUTPUTS = 4  # the datasets that it writes


def _create(connection: apsw.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)


_TABLES = (
    # Facts about the file: the position in the log.
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # Names of datasets; `dataset` is the id of the name that stands for all names of the dataset.
    "CREATE TABLE dataset_names(id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " dataset INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT",
    "CREATE INDEX dataset_names_text ON dataset_names(namespace, name)",
    "CREATE INDEX dataset_names_name ON dataset_names(name)",
    "CREATE INDEX dataset_names_dataset ON dataset_names(dataset, last_at)",
    "CREATE INDEX dataset_names_age ON dataset_names(last_at)",
    # The aliases that the `symlinks` facet of a name lists.
    "CREATE TABLE aliases(owner INTEGER NOT NULL, target INTEGER NOT NULL, PRIMARY KEY (owner, target))"
    " STRICT, WITHOUT ROWID",
    "CREATE INDEX aliases_target ON aliases(target)",
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT",
    "CREATE INDEX jobs_text ON jobs(namespace, name)",
    "CREATE INDEX jobs_name ON jobs(name)",
    "CREATE INDEX jobs_age ON jobs(last_at)",
    # level: 0 only OTHER so far, 1 started, 2 ended; (level, state_at, state) only ever grows
    "CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE,"
    " job INTEGER NOT NULL, job_at INTEGER NOT NULL,"
    " level INTEGER NOT NULL, state_at INTEGER NOT NULL, state INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, started_at INTEGER,"
    " parent TEXT NOT NULL, parent_job INTEGER NOT NULL, root TEXT NOT NULL, root_job INTEGER NOT NULL,"
    " parent_at INTEGER NOT NULL) STRICT",
    "CREATE INDEX runs_job ON runs(job, last_at)",
    "CREATE INDEX runs_age ON runs(last_at)",
    "CREATE INDEX runs_parent ON runs(parent) WHERE parent != ''",
    "CREATE TABLE run_facets(run INTEGER NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL,"
    " deleted INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (run, key)) STRICT, WITHOUT ROWID",
    # container: 0 `facets` of a dataset or job, 1 `inputFacets`, 2 `outputFacets`, 3 changes.UNRESOLVED
    "CREATE TABLE facets(owner INTEGER NOT NULL, container INTEGER NOT NULL, key TEXT NOT NULL,"
    " at INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (owner, container, key)) STRICT, WITHOUT ROWID",
    # Datasets of a job; direction: 1 it reads them, 2 it writes them.
    "CREATE TABLE job_datasets(job INTEGER NOT NULL, direction INTEGER NOT NULL, name INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, PRIMARY KEY (job, direction, name))"
    " STRICT, WITHOUT ROWID",
    "CREATE INDEX job_datasets_name ON job_datasets(name, direction, job)",
    "CREATE INDEX job_datasets_age ON job_datasets(last_at)",
    # Datasets of a run with their statistics of the time `reported_at`; -1: not reported.
    "CREATE TABLE run_datasets(run INTEGER NOT NULL, direction INTEGER NOT NULL, name INTEGER NOT NULL,"
    " at INTEGER NOT NULL, reported_at INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " files INTEGER NOT NULL, PRIMARY KEY (run, direction, name)) STRICT, WITHOUT ROWID",
    "CREATE INDEX run_datasets_name ON run_datasets(name, at)",
    "CREATE TABLE schemas(id BLOB PRIMARY KEY, fields BLOB NOT NULL) STRICT, WITHOUT ROWID",
    # written_at: when a writer of the dataset last reported this schema; 0 where only readers did
    "CREATE TABLE versions(name INTEGER NOT NULL, schema BLOB NOT NULL, first_at INTEGER NOT NULL,"
    " last_at INTEGER NOT NULL, written_at INTEGER NOT NULL, PRIMARY KEY (name, schema))"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE fields(id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
    # field 0: the whole dataset
    "CREATE TABLE columns(id INTEGER PRIMARY KEY, name INTEGER NOT NULL, field INTEGER NOT NULL) STRICT",
    "CREATE INDEX columns_name ON columns(name, field)",
    "CREATE INDEX columns_field ON columns(field)",
    "CREATE TABLE edges(target INTEGER NOT NULL, source INTEGER NOT NULL, job INTEGER NOT NULL,"
    " type TEXT NOT NULL, subtype TEXT NOT NULL, masking INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, description TEXT NOT NULL,"
    " PRIMARY KEY (target, source, job, type, subtype, masking)) STRICT, WITHOUT ROWID",
    "CREATE INDEX edges_source ON edges(source, job)",
    "CREATE INDEX edges_age ON edges(last_at)",
    # The last complete statement of a job about something (kind: see Statement), and its run. Facts that
    # the job reported before that run, and not since, are no longer current.
    "CREATE TABLE last_statements(job INTEGER NOT NULL, name INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " at INTEGER NOT NULL, run TEXT NOT NULL, PRIMARY KEY (name, job, kind)) STRICT, WITHOUT ROWID",
    "CREATE INDEX last_statements_job ON last_statements(job)",
    # Substrings of names, jobs and fields; the rowid is the id.
    "CREATE VIRTUAL TABLE search USING fts5(text, content='', contentless_delete=1, tokenize='trigram')",
)


# Tables by their names in version 1, with the new names.
RENAMED = {
    "notes": "meta",
    "names": "dataset_names",
    "links": "aliases",
    "io": "job_datasets",
    "run_io": "run_datasets",
    "reports": "last_statements",
}


def _rename(connection: apsw.Connection) -> None:
    """Rename the tables of a file of version 1; a new file already has the new names."""
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        if table in RENAMED:
            connection.execute(f"ALTER TABLE {table} RENAME TO {RENAMED[table]}")
        if table == "run_io":
            connection.execute("ALTER TABLE run_datasets RENAME COLUMN told_at TO reported_at")


MAX_ALIASES = 100  # of one `symlinks` facet
DAY = 86_400_000_000  # microseconds

_LINKS = (
    # The aliases that a producer listed last in the `symlinks` facet of a name, as a JSON array of ids. The
    # producer is empty for facets that an earlier release stored. `aliases` has those that count.
    "CREATE TABLE link_statements(owner INTEGER NOT NULL, producer TEXT NOT NULL, at INTEGER NOT NULL,"
    " targets BLOB NOT NULL, PRIMARY KEY (owner, producer)) STRICT, WITHOUT ROWID",
    # Names that a user separated: `apart` is never of one dataset with `kept`.
    "CREATE TABLE separations(kept INTEGER NOT NULL, apart INTEGER NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY (kept, apart)) STRICT, WITHOUT ROWID",
)
# Columns with times that keep the latest of their rows: one far in the future would keep it without end.
_LATEST_TIMES = {
    "dataset_names": ("last_at",),
    "jobs": ("last_at",),
    "runs": ("job_at", "state_at", "last_at", "parent_at"),
    "run_facets": ("at",),
    "facets": ("at",),
    "job_datasets": ("last_at",),
    "run_datasets": ("at", "reported_at"),
    "versions": ("last_at", "written_at"),
    "edges": ("last_at",),
    "last_statements": ("at",),
}


def _record_link_producers(connection: apsw.Connection) -> None:
    """Keep the stored links, of an unknown producer, and set times in the future to now."""
    for statement in _LINKS:
        connection.execute(statement)
    query = "SELECT owner, at, deleted, value FROM facets WHERE container = 0 AND key = 'symlinks'"
    rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    for owner, at, deleted, value in rows:
        targets = [] if deleted else sorted(set(_identifiers(orjson.loads(value))) - {owner})
        connection.execute(
            "INSERT INTO link_statements VALUES (?, '', ?, ?)", (owner, at, orjson.dumps(targets))
        )
    now = time.time_ns() // 1000
    for table, columns in _LATEST_TIMES.items():
        for column in columns:
            update = f"UPDATE {table} SET {column} = ? WHERE {column} > ?"  # noqa: S608
            connection.execute(update, (now, now + DAY))


def _identifiers(facet: Any) -> Iterator[int]:
    identifiers = facet.get("identifiers") if isinstance(facet, dict) else None
    for item in (identifiers if isinstance(identifiers, list) else ())[:MAX_ALIASES]:
        if isinstance(item, dict):
            namespace, name = item.get("namespace"), item.get("name")
            if isinstance(namespace, str) and isinstance(name, str):
                yield dataset_id(namespace, name)


def _record_column_sources(connection: apsw.Connection) -> None:
    """Make the datasets that only `columnLineage` names inputs of the jobs that reported it."""
    connection.execute("CREATE INDEX IF NOT EXISTS versions_schema ON versions(schema)")  # for retention
    connection.execute(
        "INSERT INTO job_datasets SELECT e.job, ?1, d.name, min(e.first_at), max(e.last_at) FROM edges e"
        " JOIN columns d ON d.id = e.source JOIN columns c ON c.id = e.target"
        " WHERE e.job != ?2 AND d.name != c.name GROUP BY e.job, d.name ON CONFLICT DO NOTHING",
        (int(Direction.INPUT), NO_JOB_ID),
    )


MIGRATIONS = (_create, _rename, _record_link_producers, _record_column_sources)
