"""Walks from dataset to dataset over the jobs in between.

Level by level, one statement for all of a level. A walk stops at its depth or limit and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import apsw

from headwater.graph.query.answers import Edge, Neighbourhood, key_of_dataset, key_of_job
from headwater.graph.query.nodes import dataset_nodes, job_nodes, rows_for
from headwater.graph.query.trace import column_edges
from headwater.graph.store.run_facts import NO_JOB, Direction, Report

__all__ = ["Walk", "Way", "Ways", "neighbourhood", "ways"]

Way = Literal["up", "down"]
Ways = Literal["up", "down", "both"]
FACTOR = 20  # rows that a level may have for each dataset that may be shown
MAX_EDGES = 20_000


def ways(direction: Ways) -> tuple[Way, ...]:
    """The single ways of a direction."""
    return ("up", "down") if direction == "both" else (direction,)


# Jobs that read (1) or write (2) these datasets.
_USERS = (
    "SELECT DISTINCT n.dataset, io.job FROM json_each(?1) CROSS JOIN names n ON n.dataset = value"
    " JOIN io ON io.name = n.id AND io.direction = ?2 LIMIT ?3"
)
# Datasets that these jobs read or write.
_USED = (
    "SELECT io.job, n.dataset, max(io.last_at) FROM json_each(?1)"
    " CROSS JOIN io ON io.job = value AND io.direction = ?2 JOIN names n ON n.id = io.name"
    " GROUP BY 1, 2 LIMIT ?3"
)
# Since when what a job tells is current: the first moment of the run in which it last told it.
_CURRENT = (
    "SELECT p.job, coalesce(r.first_at, p.at) FROM json_each(?1)"
    " CROSS JOIN reports p ON p.name = 0 AND p.job = value AND p.kind = ?2 LEFT JOIN runs r ON r.uuid = p.run"
)
# Jobs that said in so many words what a dataset is made of: then it is not made of all that they read.
_EXPLICIT = (
    "SELECT DISTINCT n.dataset, p.job FROM json_each(?1) CROSS JOIN names n ON n.dataset = value"
    " JOIN reports p ON p.name = n.id AND (p.kind = ?2 OR p.job = 0)"
)
_MADE_OF = (
    "SELECT t.dataset, e.job, s.dataset FROM json_each(?1)"
    " CROSS JOIN names t ON t.dataset = value JOIN columns c ON c.name = t.id JOIN edges e ON e.target = c.id"
    " JOIN columns d ON d.id = e.source JOIN names s ON s.id = d.name GROUP BY 1, 2, 3 LIMIT ?2"
)
_MAKES = (
    "SELECT t.dataset, e.job, s.dataset FROM json_each(?1)"
    " CROSS JOIN names s ON s.dataset = value JOIN columns d ON d.name = s.id"
    " JOIN edges e ON e.source = d.id{}"
    " JOIN columns c ON c.id = e.target JOIN names t ON t.id = c.name GROUP BY 1, 2, 3 LIMIT ?2"
)
_MAKES_ALL, _MAKES_ALONE = _MAKES.format(""), _MAKES.format(" AND e.job = 0")


class Walk:
    """One walk; `distances` are those of the datasets it came by, upstream ones negative."""

    def __init__(self, connection: apsw.Connection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self.distances: dict[int, int] = {}
        self.jobs: set[int] = set()
        self.reached_by: dict[int, set[int]] = {}  # dataset: the jobs over which it was reached
        self._alone: set[tuple[int, int]] = set()  # datasets tied without a job: source, target
        self.truncated = False

    def go(self, start: Iterable[int], way: Way, depth: int, first: int = 1) -> None:
        """From these datasets, which are at the distance `first - 1`."""
        frontier = set(start)
        for distance in range(first, depth + 1):
            if not frontier:
                return
            frontier = self._reach(self._step(frontier, way), -distance if way == "up" else distance)

    def from_job(self, job: int, way: Way, depth: int) -> None:
        """From a job: what it reads (up) or writes (down), and on from there."""
        self.jobs.add(job)
        direction = Direction.INPUT if way == "up" else Direction.OUTPUT
        found = {(dataset, job) for _, dataset, _ in self._used({job}, direction)}
        self.go(self._reach(found, -1 if way == "up" else 1), way, depth, 2)

    def _reach(self, found: set[tuple[int, int]], distance: int) -> set[int]:
        new = set()
        for dataset, job in sorted(found):
            if dataset not in self.distances:
                if len(self.distances) >= self._limit:
                    self.truncated = True
                    continue
                self.distances[dataset] = distance
                new.add(dataset)
            if job != NO_JOB:
                self.jobs.add(job)
                self.reached_by.setdefault(dataset, set()).add(job)
        return new

    def _step(self, frontier: set[int], way: Way) -> set[tuple[int, int]]:
        """The next datasets, each with a job over which it is reached."""
        is_up = way == "up"
        near, far = (Direction.OUTPUT, Direction.INPUT) if is_up else (Direction.INPUT, Direction.OUTPUT)
        most = self._limit * FACTOR
        users = rows_for(self._connection, _USERS, frontier, int(near), most)
        self.truncated |= len(users) >= most
        others: dict[int, set[int]] = {}
        for job, dataset, _ in self._used({job for _, job in users}, far):
            others.setdefault(job, set()).add(dataset)
        targets = frontier if is_up else {dataset for found in others.values() for dataset in found}
        explicit = {tuple(row) for row in rows_for(self._connection, _EXPLICIT, targets, int(Report.LINEAGE))}
        found = {
            (other, job)
            for dataset, job in users
            for other in others.get(job, ())
            if ((dataset if is_up else other), job) not in explicit
        }
        query = _MADE_OF if is_up else _MAKES_ALL if explicit else _MAKES_ALONE
        for target, job, source in (
            rows_for(self._connection, query, frontier, most) if explicit or not is_up else ()
        ):
            if job == NO_JOB:
                self._alone.add((source, target))
            if job == NO_JOB or (target, job) in explicit:
                found.add((source if is_up else target, job))
        return found

    def _used(self, jobs: set[int], direction: Direction) -> list[tuple[int, int, int]]:
        most = self._limit * FACTOR
        rows = rows_for(self._connection, _USED, jobs, int(direction), most)
        self.truncated |= len(rows) >= most
        return [(job, dataset, last_at) for job, dataset, last_at in rows]

    def edges(self) -> list[Edge]:
        """All ties between the datasets and jobs that the walk came by."""
        found = {
            Edge(key_of_dataset(source), key_of_dataset(target), True)
            for source, target in self._alone
            if source in self.distances and target in self.distances
        }
        for direction, report in ((Direction.INPUT, Report.INPUTS), (Direction.OUTPUT, Report.OUTPUTS)):
            since = dict(rows_for(self._connection, _CURRENT, self.jobs, int(report)))
            for job, dataset, last_at in self._used(self.jobs, direction):
                if dataset in self.distances:
                    ends = (key_of_dataset(dataset), key_of_job(job))
                    source, target = ends if direction is Direction.INPUT else ends[::-1]
                    found.add(Edge(source, target, last_at >= since.get(job, last_at)))
        return sorted(found, key=lambda edge: (edge.source, edge.target))


def neighbourhood(
    connection: apsw.Connection,
    *,
    dataset: int | None = None,
    job: int | None = None,
    direction: Ways = "both",
    depth: int = 2,
    limit: int = 300,
    columns: bool = False,
) -> Neighbourhood:
    """Datasets and jobs up to `depth` steps from dataset to dataset away."""
    walk = Walk(connection, limit)
    if dataset is not None:
        walk.distances[dataset] = 0
    for way in ways(direction):
        if dataset is not None:
            walk.go([dataset], way, depth)
        elif job is not None:
            walk.from_job(job, way, depth)
    tied = column_edges(connection, walk.distances, MAX_EDGES) if columns else []
    return Neighbourhood(
        key_of_dataset(dataset) if dataset is not None else key_of_job(job or NO_JOB),
        dataset_nodes(connection, walk.distances, columns=columns),
        job_nodes(connection, walk.jobs),
        walk.edges(),
        tied,
        walk.truncated or len(tied) >= MAX_EDGES,
    )
