"""Writes one `GraphChanges` in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.graph.ingest.changes import GraphChanges
from headwater.graph.store import merge_rules
from headwater.graph.store.ids import Kind, kind_of

_NEW_NAME = (
    "INSERT INTO names(id, namespace, name, dataset, first_at, last_at) VALUES (?1, ?2, ?3, ?1, ?4, ?5)"
    " ON CONFLICT DO NOTHING RETURNING id"
)
_NEW_JOB = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"
_EXTEND_NAME = "UPDATE names SET first_at = min(first_at, ?2), last_at = max(last_at, ?3) WHERE id = ?1"
_EXTEND_JOB = "UPDATE jobs SET first_at = min(first_at, ?2), last_at = max(last_at, ?3) WHERE id = ?1"
_NEW_FIELD = "INSERT INTO fields VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id"
_NEW_COLUMN = "INSERT INTO columns VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_NEW_SCHEMA = "INSERT INTO schemas VALUES (?, ?) ON CONFLICT DO NOTHING"
_INDEX_TEXT = "INSERT INTO search(rowid, text) VALUES (?, ?)"
_RUN = f"{merge_rules.RUNS.upsert} RETURNING id"
_RUN_FACET = merge_rules.RUN_FACETS.upsert
_RUN_DATASET = merge_rules.RUN_DATASETS.upsert
_FACET = merge_rules.FACETS.upsert
_JOB_DATASET = merge_rules.JOB_DATASETS.upsert
_SCHEMA_VERSION = merge_rules.SCHEMA_VERSIONS.upsert
_COLUMN_EDGE = merge_rules.COLUMN_EDGES.upsert
_LAST_STATEMENT = merge_rules.LAST_STATEMENTS.upsert


def write_changes(connection: apsw.Connection, changes: GraphChanges, known: set[int]) -> None:
    """Write all changes; `known` are ids that certainly have rows, and those that get rows are added."""
    _write_names(connection, changes, known)
    new = [(id, *column) for id, column in changes.columns.items() if id not in known]
    connection.executemany(_NEW_COLUMN, new)
    known.update(changes.columns)
    connection.executemany(_NEW_SCHEMA, changes.schemas.items())
    _write_runs(connection, changes)
    connection.executemany(_FACET, changes.facets)
    connection.executemany(_JOB_DATASET, changes.job_datasets)
    connection.executemany(_SCHEMA_VERSION, changes.schema_versions)
    connection.executemany(_COLUMN_EDGE, sorted(changes.edges))  # sorted: neighbours in the B-tree follow
    connection.executemany(_LAST_STATEMENT, changes.statements)


def _write_names(connection: apsw.Connection, changes: GraphChanges, known: set[int]) -> None:
    for statement, table in ((_NEW_NAME, changes.dataset_names), (_NEW_JOB, changes.jobs)):
        new = [
            (id, *pair, *(changes.mentions.get((id,)) or ())) for id, pair in table.items() if id not in known
        ]
        made = [id for (id,) in connection.executemany(statement, new)]
        _index(connection, ((id, "\n".join(table[id])) for id in made))
        known.update(table)
    mentions = list(changes.mentions)
    connection.executemany(_EXTEND_NAME, (row for row in mentions if kind_of(row[0]) is Kind.DATASET))
    connection.executemany(_EXTEND_JOB, (row for row in mentions if kind_of(row[0]) is Kind.JOB))
    new_fields = [(id, field) for id, field in changes.fields.items() if id not in known]
    made = [id for (id,) in connection.executemany(_NEW_FIELD, new_fields)]
    _index(connection, ((id, changes.fields[id]) for id in made))
    known.update(changes.fields)


def _index(connection: apsw.Connection, texts: Iterable[tuple[int, str]]) -> None:
    connection.executemany(_INDEX_TEXT, texts)


def _write_runs(connection: apsw.Connection, changes: GraphChanges) -> None:
    uuids = [uuid for (uuid,) in changes.runs.added_keys()]
    if not uuids:
        return
    ids = dict(zip(uuids, (id for (id,) in connection.executemany(_RUN, changes.runs)), strict=True))
    connection.executemany(_RUN_FACET, ((ids[uuid], *row) for uuid, *row in changes.run_facets))
    connection.executemany(_RUN_DATASET, ((ids[uuid], *row) for uuid, *row in changes.run_datasets))
