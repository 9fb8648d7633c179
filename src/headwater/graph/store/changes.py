"""GraphChanges: the rows of a batch of events, merged in memory and then written in one transaction.

Events repeat jobs, datasets and facets in every run; in a batch, a repetition costs a comparison, no write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw
import orjson

from headwater.graph.ingest.facet_parsers import LineageEdge
from headwater.graph.ingest.untrusted_json import canonical
from headwater.graph.store import merge_rules
from headwater.graph.store.ids import WHOLE_DATASET, Kind, column_id, dataset_id, field_id, job_id, kind_of
from headwater.graph.store.merge_rules import MergedPeriods, MergedRows
from headwater.graph.store.schema import Direction, State, Statement

Edge = tuple[int, int, int, str, str, int]  # target, source, job, type, subtype, masking

UNRESOLVED = 3  # the container for the keys of `columnLineage` without rows: unresolved columns (G11)
NEVER = -(2**63)  # before every time
NO_PARENT = (NEVER, "", 0, "", 0)  # time, parent run, its job, root run, its job
NO_STATISTICS = (NEVER, -1, -1, -1)  # time, rows, bytes, files

_NEW_NAME = (
    "INSERT INTO dataset_names(id, namespace, name, dataset, first_at, last_at)"
    " VALUES (?1, ?2, ?3, ?1, ?4, ?5) ON CONFLICT DO NOTHING RETURNING id"
)
_NEW_JOB = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"
_EXTEND_NAME = (
    "UPDATE dataset_names SET first_at = min(first_at, ?2), last_at = max(last_at, ?3) WHERE id = ?1"
)
_EXTEND_JOB = "UPDATE jobs SET first_at = min(first_at, ?2), last_at = max(last_at, ?3) WHERE id = ?1"
_NEW_FIELD = "INSERT INTO fields VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id"
_NEW_COLUMN = "INSERT INTO columns VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_NEW_SCHEMA = "INSERT INTO schemas VALUES (?, ?) ON CONFLICT DO NOTHING"
_INDEX_TEXT = "INSERT INTO search(rowid, text) VALUES (?, ?)"


class GraphChanges:
    """Rows for each table of the graph; times are in microseconds."""

    def __init__(self, max_facet_bytes: int) -> None:
        self._max_facet_bytes = max_facet_bytes
        self.dataset_names: dict[int, tuple[str, str]] = {}
        self.jobs: dict[int, tuple[str, str]] = {}
        self.fields: dict[int, str] = {}
        self.columns: dict[int, tuple[int, int]] = {}
        self.schemas: dict[bytes, bytes] = {}
        self.mentions = MergedPeriods[tuple[int]](merge_rules.MENTIONS)
        self.runs = MergedRows[tuple[str]](merge_rules.RUNS)
        self.run_facets = MergedRows[tuple[str, str]](merge_rules.RUN_FACETS)
        self.run_datasets = MergedRows[tuple[str, int, int]](merge_rules.RUN_DATASETS)
        self.facets = MergedRows[tuple[int, int, str]](merge_rules.FACETS)
        self.job_datasets = MergedPeriods[tuple[int, int, int]](merge_rules.JOB_DATASETS)
        self.schema_versions = MergedRows[tuple[int, bytes]](merge_rules.SCHEMA_VERSIONS)
        self.edges = MergedRows[Edge](merge_rules.COLUMN_EDGES)
        self.statements = MergedRows[tuple[int, int, int]](merge_rules.LAST_STATEMENTS)
        self.links = MergedRows[tuple[int, str]](merge_rules.LINK_STATEMENTS)

    def add_job(self, job: tuple[str, str], at: int) -> int:
        """Add a job that an event of this time mentions; returns its id."""
        id = job_id(*job)
        self.jobs[id] = job
        self.mentions.add((id,), at, at)
        return id

    def add_dataset(self, dataset: tuple[str, str], first: int, last: int) -> int:
        """Add the name of a dataset that events of this period mention; returns its id."""
        id = dataset_id(*dataset)
        self.dataset_names[id] = dataset
        self.mentions.add((id,), first, last)
        return id

    def add_links(self, owner: int, producer: str, targets: Iterable[int], at: int) -> None:
        """Add the aliases that a producer lists for a name: all that it lists."""
        self.links.add((owner, producer), (at, orjson.dumps(sorted(set(targets) - {owner}))))

    def add_column(self, name: int, field: str | None) -> int:
        """Add a column of a dataset's name (None: the whole dataset); returns its id."""
        known = WHOLE_DATASET
        if field is not None:
            known = field_id(field)
            self.fields[known] = field
        id = column_id(name, known)
        self.columns[id] = (name, known)
        return id

    def add_job_dataset(self, job: int, dataset: tuple[str, str], direction: Direction, at: int) -> None:
        """Add a dataset that a job reads or writes."""
        self.job_datasets.add((job, direction, self.add_dataset(dataset, at, at)), at, at)

    def add_run(
        self, uuid: str, job: int, at: int, state: State, parent: tuple[int, str, int, str, int] = NO_PARENT
    ) -> None:
        """Add one event of a run."""
        started_at = at if state is State.START else None
        self.runs.add((uuid,), (at, job), (state.level, at, int(state)), at, at, started_at, parent)

    def add_run_dataset(
        self, uuid: str, direction: Direction, name: int, at: int, statistics: tuple[int, int, int] | None
    ) -> None:
        """Add a dataset that a run reads or writes, with rows, bytes and files if it reports them."""
        reported = NO_STATISTICS if statistics is None else (at, *statistics)
        self.run_datasets.add((uuid, int(direction), name), at, reported)

    def add_statement(self, name: int, job: int, kind: Statement, at: int, uuid: str) -> None:
        """Add a complete statement of a job at this time."""
        self.statements.add((name, job, kind), (at, uuid))

    def edge_key(self, target: int, edge: LineageEdge, job: int) -> Edge:
        """Add the columns at both ends of an edge into a dataset's name; returns the key of the edge."""
        return (
            self.add_column(target, edge.target_field),
            self.add_column(dataset_id(*edge.source), edge.source_field),
            job,
            edge.type,
            edge.subtype,
            int(edge.masking),
        )

    def add_edge(self, key: Edge, description: str, first: int, last: int) -> None:
        """Add an edge that events of this period report."""
        self.edges.add(key, first, (last, description))

    def add_facet(self, owner: int, container: int, key: str, facet: dict[str, Any], at: int) -> None:
        """Add a facet of a dataset or job; the latest one is kept."""
        before = self.facets.get((owner, container, key))
        if before is None or before[0][0] <= at:  # an older facet need not be encoded
            self.facets.add((owner, container, key), self._facet(facet, at))

    def add_run_facet(self, uuid: str, key: str, facet: dict[str, Any], at: int) -> None:
        """Add a facet of a run; the latest one is kept."""
        before = self.run_facets.get((uuid, key))
        if before is None or before[0][0] <= at:
            self.run_facets.add((uuid, key), self._facet(facet, at))

    def _facet(self, facet: dict[str, Any], at: int) -> tuple[int, bool, bytes]:
        return at, facet.get("_deleted") is True, canonical(facet, self._max_facet_bytes)

    # --- writing -------------------------------------------------------------------------------------

    def write(self, connection: apsw.Connection, known: set[int]) -> None:
        """Write all changes; `known` are ids that have rows, and receives the ids of the new rows."""
        self._write_names(connection, known)
        self._write_runs(connection)
        connection.executemany(_NEW_SCHEMA, self.schemas.items())
        for table in (self.facets, self.links, self.job_datasets, self.schema_versions, self.statements):
            connection.executemany(table.upsert, table)
        connection.executemany(self.edges.upsert, sorted(self.edges))  # neighbours in the B-tree follow

    def _write_names(self, connection: apsw.Connection, known: set[int]) -> None:
        for statement, table in ((_NEW_NAME, self.dataset_names), (_NEW_JOB, self.jobs)):
            new = [
                (id, *pair, *(self.mentions.get((id,)) or ()))
                for id, pair in table.items()
                if id not in known
            ]
            made = [id for (id,) in connection.executemany(statement, new)]
            _index(connection, ((id, "\n".join(table[id])) for id in made))
        mentions = list(self.mentions)
        connection.executemany(_EXTEND_NAME, (row for row in mentions if kind_of(row[0]) is Kind.DATASET))
        connection.executemany(_EXTEND_JOB, (row for row in mentions if kind_of(row[0]) is Kind.JOB))
        fields = (row for row in self.fields.items() if row[0] not in known)
        made = [id for (id,) in connection.executemany(_NEW_FIELD, fields)]
        _index(connection, ((id, self.fields[id]) for id in made))
        columns = ((id, *column) for id, column in self.columns.items() if id not in known)
        connection.executemany(_NEW_COLUMN, columns)
        known.update(self.dataset_names, self.jobs, self.fields, self.columns)

    def _write_runs(self, connection: apsw.Connection) -> None:
        uuids = [uuid for (uuid,) in self.runs.added_keys()]
        if not uuids:
            return
        made = connection.executemany(f"{self.runs.upsert} RETURNING id", self.runs)
        ids = dict(zip(uuids, (id for (id,) in made), strict=True))
        for table in (self.run_facets, self.run_datasets):
            connection.executemany(table.upsert, ((ids[uuid], *row) for uuid, *row in table))


def _index(connection: apsw.Connection, texts: Iterable[tuple[int, str]]) -> None:
    connection.executemany(_INDEX_TEXT, texts)
