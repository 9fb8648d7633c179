"""Column lineage from column to column, upstream and downstream, with its gaps (G11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import apsw

from headwater.graph.query.answers import (
    ColumnEdge,
    ColumnNode,
    DatasetNode,
    Gap,
    Omitted,
    Trace,
    UpOrDown,
    key_of_dataset,
    key_of_job,
)
from headwater.graph.query.details import dataset_nodes, job_nodes
from headwater.graph.query.failed_writes import failed_writes
from headwater.graph.store.database import rows_for
from headwater.graph.store.ids import WHOLE_DATASET, field_id
from headwater.graph.store.schema import Direction, Statement

ColumnRef = tuple[int, int]  # a dataset and a field of it, or 0 for the whole dataset
T = TypeVar("T")
_NONE: Any = object()

MAX_GAPS = 200
EDGES_PER_COLUMN = 20  # edges that a level may have for each column of the limit


class ColumnEdgeRow(NamedTuple):
    """An edge between two columns, as the tables have it; reports before `since` are not current."""

    source: ColumnRef
    target: ColumnRef
    job: int
    type: str
    subtype: str
    masking: int
    last_at: int
    since: int
    description: str


_SELECT = (
    "SELECT s.dataset, d.field, t.dataset, c.field, e.job, e.type, e.subtype, e.masking, e.last_at,"
    " coalesce(r.first_at, p.at, 0), e.description FROM json_each(?1) AS j"
)
_STATEMENTS = (
    f" LEFT JOIN last_statements p ON p.name = t.id AND p.job = e.job AND p.kind = {Statement.COLUMNS:d}"
    " LEFT JOIN runs r ON r.uuid = p.run"
)
_TARGETS = (
    " JOIN edges e ON e.target = c.id JOIN columns d ON d.id = e.source JOIN dataset_names s ON s.id = d.name"
)
_SOURCES = (
    " JOIN edges e ON e.source = d.id JOIN columns c ON c.id = e.target JOIN dataset_names t ON t.id = c.name"
)
# An edge of the whole dataset (field 0) is an edge of each of its columns, and vice versa.
_UP = (
    f"{_SELECT} CROSS JOIN dataset_names t ON t.dataset = j.value ->> 0 JOIN columns c ON c.name = t.id"
    f" AND (j.value ->> 1 = 0 OR c.field IN (j.value ->> 1, 0)){_TARGETS}{_STATEMENTS} LIMIT ?2"
)
_DOWN = (
    f"{_SELECT} CROSS JOIN dataset_names s ON s.dataset = j.value ->> 0 JOIN columns d ON d.name = s.id"
    f" AND (j.value ->> 1 = 0 OR d.field IN (j.value ->> 1, 0)){_SOURCES}{_STATEMENTS} LIMIT ?2"
)
_AMONG = (
    f"{_SELECT} CROSS JOIN dataset_names t ON t.dataset = j.value"  # noqa: S608
    " JOIN columns c ON c.name = t.id"
    f"{_TARGETS}{_STATEMENTS} WHERE +s.dataset IN (SELECT value FROM json_each(?1)) LIMIT ?2"
)
_COUNT_AMONG = (
    "SELECT count(*) FROM (SELECT 1 FROM json_each(?1) AS j"  # noqa: S608
    " CROSS JOIN dataset_names t ON t.dataset = j.value"
    f" JOIN columns c ON c.name = t.id{_TARGETS}"
    " WHERE +s.dataset IN (SELECT value FROM json_each(?1)) LIMIT ?2)"
)
_COUNTS_AMONG = (
    "SELECT s.dataset, t.dataset, count(*), sum(e.type = 'DIRECT'),"  # noqa: S608
    " max(e.last_at >= coalesce(r.first_at, p.at, 0)) FROM json_each(?1) AS j"
    " CROSS JOIN dataset_names t ON t.dataset = j.value JOIN columns c ON c.name = t.id"
    f"{_TARGETS}{_STATEMENTS} WHERE +s.dataset IN (SELECT value FROM json_each(?1))"
    " AND s.dataset != t.dataset GROUP BY 1, 2"
)
# Fields of the same dataset that contain this one, or that it contains.
_PARENT_AND_CHILD_COLUMNS = (
    "SELECT DISTINCT n.dataset, f.id FROM json_each(?1) AS j CROSS JOIN fields own ON own.id = j.value ->> 1"
    " JOIN dataset_names n ON n.dataset = j.value ->> 0 JOIN columns c ON c.name = n.id"
    " JOIN fields f ON f.id = c.field"
    " WHERE (substr(own.text, 1, length(f.text)) = f.text"
    "  AND substr(own.text, length(f.text) + 1, 1) IN ('.', '/'))"
    " OR (substr(f.text, 1, length(own.text)) = own.text"
    "  AND substr(f.text, length(own.text) + 1, 1) IN ('.', '/'))"
)
_FIELD_NAMES = "SELECT f.id, f.text FROM json_each(?1) CROSS JOIN fields f ON f.id = value"
# Jobs that write one of these datasets (up), or read one and write another (down), without column lineage.
_JOBS_WITHOUT_COLUMN_LINEAGE_UP = (
    "SELECT DISTINCT i.job, m.dataset, n.dataset FROM json_each(?1)"  # noqa: S608
    " CROSS JOIN dataset_names n ON n.dataset = value"
    f" JOIN job_datasets o ON o.name = n.id AND o.direction = {Direction.OUTPUT:d}"
    f" JOIN job_datasets i ON i.job = o.job AND i.direction = {Direction.INPUT:d}"
    " JOIN dataset_names m ON m.id = i.name"
    " WHERE m.dataset != n.dataset AND NOT EXISTS"
    " (SELECT 1 FROM last_statements WHERE name = o.name AND job = o.job AND kind = ?2) LIMIT ?3"
)
_JOBS_WITHOUT_COLUMN_LINEAGE_DOWN = (
    "SELECT DISTINCT i.job, n.dataset, m.dataset FROM json_each(?1)"  # noqa: S608
    " CROSS JOIN dataset_names n ON n.dataset = value"
    f" JOIN job_datasets i ON i.name = n.id AND i.direction = {Direction.INPUT:d}"
    f" JOIN job_datasets o ON o.job = i.job AND o.direction = {Direction.OUTPUT:d}"
    " JOIN dataset_names m ON m.id = o.name"
    " WHERE m.dataset != n.dataset AND NOT EXISTS"
    " (SELECT 1 FROM last_statements WHERE name = o.name AND job = o.job AND kind = ?2) LIMIT ?3"
)


def _edge_rows(connection: apsw.Connection, sql: str, of: Iterable[Any], limit: int) -> list[ColumnEdgeRow]:
    return [
        ColumnEdgeRow((row[0], row[1]), (row[2], row[3]), *row[4:])
        for row in rows_for(connection, sql, of, limit)
    ]


def column_edges(connection: apsw.Connection, datasets: Collection[int], limit: int) -> list[ColumnEdge]:
    """All edges between columns of these datasets."""
    return _column_edges(connection, _edge_rows(connection, _AMONG, datasets, limit))


def edges_of_dataset(
    connection: apsw.Connection, dataset: int, limit: int
) -> tuple[list[ColumnEdge], list[DatasetNode], bool]:
    """The edges at the columns of a dataset, the datasets at their ends, and whether there are more."""
    start = [[dataset, WHOLE_DATASET]]
    directions = [_edge_rows(connection, sql, start, limit) for sql in (_UP, _DOWN)]
    found = {row for rows in directions for row in rows}
    ends = {ref[0]: 0 for row in found for ref in (row.source, row.target)}
    is_cut = any(len(rows) >= limit for rows in directions)
    return _column_edges(connection, found), dataset_nodes(connection, ends), is_cut


def edges_of_datasets(
    connection: apsw.Connection, datasets: Iterable[int], others: Iterable[int], limit: int
) -> list[ColumnEdge]:
    """The edges between columns of some datasets and those of others, at most so many in each direction."""
    start = [[dataset, WHOLE_DATASET] for dataset in datasets]
    known = {*others}
    rows = {
        row
        for sql in (_UP, _DOWN)
        for row in _edge_rows(connection, sql, start, limit)
        if row.source[0] in known and row.target[0] in known
    }
    return _column_edges(connection, rows)


def column_edge_counts(
    connection: apsw.Connection, datasets: Collection[int]
) -> list[tuple[int, int, int, int, int]]:
    """Source, target, edges between their columns, how many are direct, and whether one is current."""
    return rows_for(connection, _COUNTS_AMONG, datasets)


def count_column_edges(connection: apsw.Connection, datasets: Collection[int], limit: int) -> int:
    """The number of edges between columns of these datasets, at most `limit`."""
    return int(rows_for(connection, _COUNT_AMONG, datasets, limit)[0][0])


def _column_edges(connection: apsw.Connection, rows: Iterable[ColumnEdgeRow]) -> list[ColumnEdge]:
    rows = sorted(rows, key=lambda row: row.last_at)  # if several aliases have the edge, the last one counts
    names = field_names(connection, {ref[1] for row in rows for ref in (row.source, row.target)})
    failed = failed_writes(connection, {(row.target[0], row.job) for row in rows})
    found: dict[tuple[Any, ...], ColumnEdge] = {}
    for row in rows:
        found[(row.source, row.target, row.job, row.type, row.subtype, row.masking)] = ColumnEdge(
            key_of_dataset(row.source[0]),
            names.get(row.source[1]),
            key_of_dataset(row.target[0]),
            names.get(row.target[1]),
            row.type,
            row.subtype,
            bool(row.masking),
            row.last_at >= row.since,
            key_of_job(row.job),
            row.description,
            (row.target[0], row.job) in failed,
        )
    return sorted(found.values(), key=lambda edge: edge.identity)


def field_names(connection: apsw.Connection, fields: Iterable[int]) -> dict[int, str]:
    """The names of fields by their ids."""
    return dict(rows_for(connection, _FIELD_NAMES, fields))


def in_turns(lists: Iterable[Iterable[T]]) -> Iterator[T]:
    """The first of each list, then the second of each, and so on."""
    for turn in zip_longest(*lists, fillvalue=_NONE):
        yield from (item for item in turn if item is not _NONE)


class ColumnTrace:
    """A breadth-first search over columns: their distances, the edges between them, and the gaps."""

    def __init__(self, connection: apsw.Connection, start: ColumnRef, *, indirect: bool, limit: int) -> None:
        self._connection = connection
        self._indirect = indirect
        self._limit = limit
        self.start = start
        self.distances: dict[ColumnRef, int] = {start: 0}
        self.rows: set[ColumnEdgeRow] = set()
        self.gaps: set[tuple[int, int, int]] = set()  # job, source, target
        self.omitted: set[ColumnRef] = set()
        self.truncated = False

    def expand(self, directions: Iterable[UpOrDown], depth: int) -> None:
        """Search upstream, downstream or both from the start; the directions take turns."""
        seen: dict[UpOrDown, set[ColumnRef]] = {direction: {self.start} for direction in directions}
        frontiers = {direction: {self.start} for direction in seen}
        max_rows = self._limit * EDGES_PER_COLUMN
        for distance in range(1, depth + 1):
            if not any(frontiers.values()):
                break
            if (left := max_rows - len(self.rows)) <= 0:
                self.truncated = True
                break
            levels = [
                [(direction, row) for row in self._next_rows(direction, frontier, left)]
                for direction, frontier in frontiers.items()
                if frontier
            ]
            frontiers = {direction: set() for direction in seen}
            for direction, row in in_turns(levels):
                sign = -1 if direction == "up" else 1
                near, far = (row.target, row.source) if direction == "up" else (row.source, row.target)
                if far not in self.distances and len(self.distances) >= self._limit:
                    self.truncated = True
                    self.omitted.add(far)
                    continue
                self.rows.add(row)
                # the near end of an edge of the whole dataset is the whole dataset
                self.distances.setdefault(near, sign * (distance - 1))
                self.distances.setdefault(far, sign * distance)
                if far not in seen[direction]:
                    seen[direction].add(far)
                    frontiers[direction].add(far)
        for direction, columns in seen.items():
            self._find_gaps(direction, {dataset for dataset, _ in columns})

    def _next_rows(self, direction: UpOrDown, frontier: set[ColumnRef], limit: int) -> list[ColumnEdgeRow]:
        """The edges beyond these columns, those reported last first."""
        # edges of a whole are edges of its parts, and edges of a part are edges of the whole
        related = rows_for(self._connection, _PARENT_AND_CHILD_COLUMNS, map(list, frontier))
        refs = map(list, frontier | set(related))
        found = _edge_rows(self._connection, _UP if direction == "up" else _DOWN, refs, limit)
        self.truncated |= len(found) >= limit
        wanted = [row for row in found if self._indirect or row.type == "DIRECT"]
        return sorted(wanted, key=lambda row: (-row.last_at, row))

    def _find_gaps(self, direction: UpOrDown, datasets: set[int]) -> None:
        query = _JOBS_WITHOUT_COLUMN_LINEAGE_UP if direction == "up" else _JOBS_WITHOUT_COLUMN_LINEAGE_DOWN
        rows = rows_for(self._connection, query, datasets, int(Statement.COLUMNS), MAX_GAPS)
        self.truncated |= len(rows) >= MAX_GAPS
        self.gaps |= {(job, source, target) for job, source, target in rows}

    def edges(self) -> list[ColumnEdge]:
        """The edges of the trace."""
        return _column_edges(self._connection, self.rows)

    def columns(self) -> list[ColumnNode]:
        """The columns of the trace, nearest first."""
        names = field_names(self._connection, {field for _, field in self.distances})
        found = [
            ColumnNode(key_of_dataset(dataset), names.get(field), distance)
            for (dataset, field), distance in self.distances.items()
        ]
        return sorted(found, key=lambda node: (abs(node.distance), node.dataset, node.column or ""))

    def datasets(self) -> dict[int, int]:
        """The datasets of the columns with their least distances, and the datasets beyond the gaps."""
        found: dict[int, int] = {}
        for (dataset, _), distance in sorted(self.distances.items(), key=lambda item: abs(item[1])):
            found.setdefault(dataset, distance)
        for _, source, target in self.gaps:
            if source in found:
                found.setdefault(target, found[source] + 1)
            else:
                found.setdefault(source, found.get(target, 0) - 1)
        return found


def trace(
    connection: apsw.Connection,
    dataset: int,
    column: str,
    *,
    directions: Iterable[UpOrDown],
    depth: int,
    indirect: bool,
    limit: int,
) -> Trace:
    """The columns up to `depth` steps upstream and downstream of a column."""
    found = ColumnTrace(connection, (dataset, field_id(column)), indirect=indirect, limit=limit)
    found.expand(directions, depth)
    jobs = {row.job for row in found.rows} | {job for job, _, _ in found.gaps}
    return Trace(
        key_of_dataset(dataset),
        column,
        dataset_nodes(connection, found.datasets()),
        job_nodes(connection, jobs),
        found.columns(),
        found.edges(),
        [
            Gap(key_of_job(job), key_of_dataset(source), key_of_dataset(target))
            for job, source, target in sorted(found.gaps)
        ],
        found.truncated,
        Omitted(columns=len(found.omitted), at_least=found.truncated),
    )
