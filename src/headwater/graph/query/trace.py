"""Traces from column to column: where one comes from, and what is made of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import apsw

from headwater.graph.query.answers import ColumnEdge, ColumnNode, Gap, Trace, key_of_dataset, key_of_job
from headwater.graph.query.nodes import dataset_nodes, job_nodes, rows_for
from headwater.graph.store.ids import WHOLE
from headwater.graph.store.run_facts import Direction, Report

__all__ = ["Tracing", "column_edges", "texts_of", "trace"]

Place = tuple[int, int]  # a dataset and a field of it, or WHOLE
MAX_GAPS = 200
FACTOR = 20  # edges that a level may have for each column that may be shown


class Step(NamedTuple):
    """An edge between two places, as the tables have it."""

    source: Place
    target: Place
    job: int
    type: str
    subtype: str
    masking: int
    last_at: int
    since: int
    description: str


# `since`: from when on what the job tells of the target's columns is current; see walk._CURRENT.
_SELECT = (
    "SELECT s.dataset, d.field, t.dataset, c.field, e.job, e.type, e.subtype, e.masking, e.last_at,"
    " coalesce(r.first_at, p.at, 0), e.description FROM json_each(?1) AS j"
)
_REPORTED = (
    " LEFT JOIN reports p ON p.name = t.id AND p.job = e.job AND p.kind = 1"
    " LEFT JOIN runs r ON r.uuid = p.run"
)
_TARGETS = " JOIN edges e ON e.target = c.id JOIN columns d ON d.id = e.source JOIN names s ON s.id = d.name"
_SOURCES = " JOIN edges e ON e.source = d.id JOIN columns c ON c.id = e.target JOIN names t ON t.id = c.name"
# What concerns the whole dataset concerns each column of it, and the other way round.
_UP = (
    f"{_SELECT} CROSS JOIN names t ON t.dataset = j.value ->> 0 JOIN columns c ON c.name = t.id"
    f" AND (j.value ->> 1 = 0 OR c.field IN (j.value ->> 1, 0)){_TARGETS}{_REPORTED} LIMIT ?2"
)
_DOWN = (
    f"{_SELECT} CROSS JOIN names s ON s.dataset = j.value ->> 0 JOIN columns d ON d.name = s.id"
    f" AND (j.value ->> 1 = 0 OR d.field IN (j.value ->> 1, 0)){_SOURCES}{_REPORTED} LIMIT ?2"
)
_AMONG = (
    f"{_SELECT} CROSS JOIN names t ON t.dataset = j.value"  # noqa: S608
    " JOIN columns c ON c.name = t.id"
    f"{_TARGETS}{_REPORTED} WHERE +s.dataset IN (SELECT value FROM json_each(?1)) LIMIT ?2"
)
# Other fields of the same dataset that are a part of this one, or that this one is a part of.
_KIN = (
    "SELECT DISTINCT n.dataset, f.id FROM json_each(?1) AS j CROSS JOIN fields own ON own.id = j.value ->> 1"
    " JOIN names n ON n.dataset = j.value ->> 0 JOIN columns c ON c.name = n.id"
    " JOIN fields f ON f.id = c.field"
    " WHERE (substr(own.text, 1, length(f.text)) = f.text"
    "  AND substr(own.text, length(f.text) + 1, 1) IN ('.', '/'))"
    " OR (substr(f.text, 1, length(own.text)) = own.text"
    "  AND substr(f.text, length(own.text) + 1, 1) IN ('.', '/'))"
)
_TEXTS = "SELECT f.id, f.text FROM json_each(?1) CROSS JOIN fields f ON f.id = value"
# Jobs that write one of these datasets (up), or read one and write another (down), and never told of columns.
_SILENT_UP = (
    "SELECT DISTINCT i.job, m.dataset, n.dataset FROM json_each(?1) CROSS JOIN names n ON n.dataset = value"
    " JOIN io o ON o.name = n.id AND o.direction = 2 JOIN io i ON i.job = o.job AND i.direction = 1"
    " JOIN names m ON m.id = i.name"
    " WHERE NOT EXISTS (SELECT 1 FROM reports p WHERE p.name = o.name AND p.job = o.job AND p.kind = ?2)"
    " AND m.dataset != n.dataset LIMIT ?3"
)
_SILENT_DOWN = (
    "SELECT DISTINCT i.job, n.dataset, m.dataset FROM json_each(?1) CROSS JOIN names n ON n.dataset = value"
    " JOIN io i ON i.name = n.id AND i.direction = 1 JOIN io o ON o.job = i.job AND o.direction = 2"
    " JOIN names m ON m.id = o.name"
    " WHERE NOT EXISTS (SELECT 1 FROM reports p WHERE p.name = o.name AND p.job = o.job AND p.kind = ?2)"
    " AND m.dataset != n.dataset LIMIT ?3"
)


def _steps(connection: apsw.Connection, sql: str, of: Iterable[Any], limit: int) -> list[Step]:
    return [
        Step((row[0], row[1]), (row[2], row[3]), *row[4:]) for row in rows_for(connection, sql, of, limit)
    ]


def column_edges(connection: apsw.Connection, datasets: Collection[int], limit: int) -> list[ColumnEdge]:
    """All edges between columns of these datasets."""
    return _shown(connection, _steps(connection, _AMONG, datasets, limit))


def _shown(connection: apsw.Connection, steps: Iterable[Step]) -> list[ColumnEdge]:
    steps = list(steps)
    texts = texts_of(connection, {place[1] for step in steps for place in (step.source, step.target)})
    found: dict[tuple[Any, ...], ColumnEdge] = {}
    for step in sorted(
        steps, key=lambda step: step.last_at
    ):  # of aliases that tell the same, the last counts
        edge = ColumnEdge(
            key_of_dataset(step.source[0]),
            texts.get(step.source[1]),
            key_of_dataset(step.target[0]),
            texts.get(step.target[1]),
            step.type,
            step.subtype,
            bool(step.masking),
            step.last_at >= step.since,
            key_of_job(step.job),
            step.description,
        )
        found[(step.source, step.target, step.job, step.type, step.subtype, step.masking)] = edge
    return sorted(found.values(), key=lambda edge: edge.identity)


def texts_of(connection: apsw.Connection, fields: Iterable[int]) -> dict[int, str]:
    return dict(rows_for(connection, _TEXTS, fields))


class Tracing:
    """One trace: the places it came by with their distances, and the steps in between."""

    def __init__(self, connection: apsw.Connection, start: Place, *, indirect: bool, limit: int) -> None:
        self._connection = connection
        self._indirect = indirect
        self._limit = limit
        self.start = start
        self.distances: dict[Place, int] = {start: 0}
        self.steps: set[Step] = set()
        self.gaps: set[tuple[int, int, int]] = set()
        self.truncated = False

    def go(self, way: str, depth: int) -> None:
        """Up or down from the start."""
        frontier, sign = {self.start}, -1 if way == "up" else 1
        seen = set(frontier)
        for distance in range(1, depth + 1):
            if not frontier:
                break
            most = self._limit * FACTOR
            # what makes the whole makes its parts, and what is made of a part is made of the whole
            places = frontier | set(rows_for(self._connection, _KIN, map(list, frontier)))
            found = _steps(self._connection, _UP if way == "up" else _DOWN, map(list, places), most)
            self.truncated |= len(found) >= most
            frontier = set()
            for step in found:
                if not self._indirect and step.type != "DIRECT":
                    continue
                near, place = (step.target, step.source) if way == "up" else (step.source, step.target)
                if place not in self.distances and len(self.distances) >= self._limit:
                    self.truncated = True
                    continue
                self.steps.add(step)
                # the near end is the dataset as a whole where that is what the edge concerns
                self.distances.setdefault(near, sign * (distance - 1))
                self.distances.setdefault(place, sign * distance)
                if place not in seen:
                    seen.add(place)
                    frontier.add(place)
        self._find_gaps(way, {dataset for dataset, _ in seen})

    def _find_gaps(self, way: str, datasets: set[int]) -> None:
        query = _SILENT_UP if way == "up" else _SILENT_DOWN
        rows = rows_for(self._connection, query, datasets, int(Report.COLUMNS), MAX_GAPS)
        self.gaps |= {(job, source, target) for job, source, target in rows}

    def edges(self) -> list[ColumnEdge]:
        """The steps, for people."""
        return _shown(self._connection, self.steps)

    def columns(self) -> list[ColumnNode]:
        """The places, nearest first."""
        texts = texts_of(self._connection, {field for _, field in self.distances})
        found = [
            ColumnNode(key_of_dataset(dataset), texts.get(field), distance)
            for (dataset, field), distance in self.distances.items()
        ]
        return sorted(found, key=lambda node: (abs(node.distance), node.dataset, node.column or ""))

    def datasets(self) -> dict[int, int]:
        """The datasets of the places, each with its least distance, and those behind the gaps."""
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
    field: int,
    column: str,
    *,
    ways: Iterable[str],
    depth: int,
    indirect: bool,
    limit: int,
) -> Trace:
    """All columns that this one is made of, and that are made of it, up to `depth` steps away."""
    tracing = Tracing(connection, (dataset, field), indirect=indirect, limit=limit)
    for way in ways:
        tracing.go(way, depth)
    jobs = {step.job for step in tracing.steps} | {job for job, _, _ in tracing.gaps}
    return Trace(
        key_of_dataset(dataset),
        column,
        dataset_nodes(connection, tracing.datasets()),
        job_nodes(connection, jobs),
        tracing.columns(),
        tracing.edges(),
        [
            Gap(key_of_job(job), key_of_dataset(source), key_of_dataset(target))
            for job, source, target in sorted(tracing.gaps)
        ],
        tracing.truncated,
    )


assert WHOLE == 0  # the statements say so
assert (Direction.INPUT, Direction.OUTPUT, Report.COLUMNS) == (1, 2, 1)
