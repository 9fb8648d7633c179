"""The tables of the graph, as numbered migrations.

Every row holds what events say in a form that does not depend on their order: the earliest and latest time of
a mention, or the value with the latest time, ties decided by the value itself. Folding an event again, or a
late one, changes nothing that a later one said.

Facts stand under the name that the event used. Which names are one dataset is kept beside them
(`names.dataset`), so that a symlink that is learnt later moves no rows.
"""

from __future__ import annotations

import apsw

__all__ = ["MIGRATIONS"]


def _create(connection: apsw.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)


_TABLES = (
    # What is known about the file: how far the log is folded.
    "CREATE TABLE notes(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # `dataset` is the id of the name that stands for all names of the dataset.
    "CREATE TABLE names(id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " dataset INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT",
    "CREATE INDEX names_text ON names(namespace, name)",
    "CREATE INDEX names_name ON names(name)",
    "CREATE INDEX names_dataset ON names(dataset, last_at)",
    "CREATE INDEX names_age ON names(last_at)",
    "CREATE TABLE links(owner INTEGER NOT NULL, target INTEGER NOT NULL, PRIMARY KEY (owner, target))"
    " STRICT, WITHOUT ROWID",
    "CREATE INDEX links_target ON links(target)",
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL) STRICT",
    "CREATE INDEX jobs_text ON jobs(namespace, name)",
    "CREATE INDEX jobs_name ON jobs(name)",
    "CREATE INDEX jobs_age ON jobs(last_at)",
    # level: 0 nothing but OTHER so far, 1 started, 2 ended; (level, state_at, state) only ever grows
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
    # container: 0 `facets` of a dataset or job, 1 `inputFacets`, 2 `outputFacets`, 3 see batch.REMARKS
    "CREATE TABLE facets(owner INTEGER NOT NULL, container INTEGER NOT NULL, key TEXT NOT NULL,"
    " at INTEGER NOT NULL, deleted INTEGER NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (owner, container, key)) STRICT, WITHOUT ROWID",
    # direction: 1 the job reads it, 2 the job writes it; in run_io -1 stands for what nobody told
    "CREATE TABLE io(job INTEGER NOT NULL, direction INTEGER NOT NULL, name INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, PRIMARY KEY (job, direction, name))"
    " STRICT, WITHOUT ROWID",
    "CREATE INDEX io_name ON io(name, direction, job)",
    "CREATE INDEX io_age ON io(last_at)",
    "CREATE TABLE run_io(run INTEGER NOT NULL, direction INTEGER NOT NULL, name INTEGER NOT NULL,"
    " at INTEGER NOT NULL, told_at INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " files INTEGER NOT NULL, PRIMARY KEY (run, direction, name)) STRICT, WITHOUT ROWID",
    "CREATE INDEX run_io_name ON run_io(name, at)",
    "CREATE TABLE schemas(id BLOB PRIMARY KEY, fields BLOB NOT NULL) STRICT, WITHOUT ROWID",
    # written_at: when a writer of the dataset last told this schema; 0 where only readers have
    "CREATE TABLE versions(name INTEGER NOT NULL, schema BLOB NOT NULL, first_at INTEGER NOT NULL,"
    " last_at INTEGER NOT NULL, written_at INTEGER NOT NULL, PRIMARY KEY (name, schema))"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE fields(id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
    # field 0: the dataset as a whole
    "CREATE TABLE columns(id INTEGER PRIMARY KEY, name INTEGER NOT NULL, field INTEGER NOT NULL) STRICT",
    "CREATE INDEX columns_name ON columns(name, field)",
    "CREATE INDEX columns_field ON columns(field)",
    "CREATE TABLE edges(target INTEGER NOT NULL, source INTEGER NOT NULL, job INTEGER NOT NULL,"
    " type TEXT NOT NULL, subtype TEXT NOT NULL, masking INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, description TEXT NOT NULL,"
    " PRIMARY KEY (target, source, job, type, subtype, masking)) STRICT, WITHOUT ROWID",
    "CREATE INDEX edges_source ON edges(source, job)",
    "CREATE INDEX edges_age ON edges(last_at)",
    # The latest time that a job told all of something (kind: see batch.Report), and in which run: what it
    # told before that run, and not since, is not current any more.
    "CREATE TABLE reports(job INTEGER NOT NULL, name INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " at INTEGER NOT NULL, run TEXT NOT NULL, PRIMARY KEY (name, job, kind)) STRICT, WITHOUT ROWID",
    "CREATE INDEX reports_job ON reports(job)",
    # Substrings of names, jobs and fields; the rowid is the id.
    "CREATE VIRTUAL TABLE search USING fts5(text, content='', contentless_delete=1, tokenize='trigram')",
)

MIGRATIONS = (_create,)
