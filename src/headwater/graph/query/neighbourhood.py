"""The datasets and jobs around one, found level by level with one statement for each level."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.graph.query.answers import (
    ColumnEdge,
    Edge,
    Neighbourhood,
    Omitted,
    UpOrDown,
    key_of_dataset,
    key_of_job,
)
from headwater.graph.query.details import dataset_nodes, job_nodes
from headwater.graph.query.trace import column_edges, count_column_edges
from headwater.graph.store.database import rows_for
from headwater.graph.store.schema import NO_JOB_ID, Direction, Statement

ROWS_PER_DATASET = 20  # rows that a level may have for each dataset of the limit
MAX_EDGES = 20_000
MAX_COUNTED = 200_000  # edges; the number of more is "at least"

_JOBS_OF_DATASETS = (
    "SELECT DISTINCT n.dataset, io.job FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value"
    " JOIN job_datasets io ON io.name = n.id AND io.direction = ?2 LIMIT ?3"
)
_DATASETS_OF_JOBS = (
    "SELECT io.job, n.dataset, max(io.last_at) FROM json_each(?1)"
    " CROSS JOIN job_datasets io ON io.job = value AND io.direction = ?2"
    " JOIN dataset_names n ON n.id = io.name GROUP BY 1, 2 LIMIT ?3"
)
_COUNT_DATASETS_OF_JOBS = (
    "SELECT count(*) FROM (SELECT DISTINCT io.job, n.dataset FROM json_each(?1)"
    " CROSS JOIN job_datasets io ON io.job = value AND io.direction = ?2"
    " JOIN dataset_names n ON n.id = io.name LIMIT ?3)"
)
# Since when the statements of a job are current: the first event of the run that made the last statement.
_CURRENT_SINCE = (
    "SELECT p.job, coalesce(r.first_at, p.at) FROM json_each(?1)"
    " CROSS JOIN last_statements p ON p.name = 0 AND p.job = value AND p.kind = ?2"
    " LEFT JOIN runs r ON r.uuid = p.run"
)
# Jobs that listed the sources of a dataset: the rest of their inputs is not upstream of it.
_WITH_LISTED_SOURCES = (
    "SELECT DISTINCT n.dataset, p.job FROM json_each(?1) CROSS JOIN dataset_names n ON n.dataset = value"
    " JOIN last_statements p ON p.name = n.id AND (p.kind = ?2 OR p.job = 0)"
)
_EDGES_UP = (
    "SELECT t.dataset, e.job, s.dataset FROM json_each(?1) CROSS JOIN dataset_names t ON t.dataset = value"
    " JOIN columns c ON c.name = t.id JOIN edges e ON e.target = c.id"
    " JOIN columns d ON d.id = e.source JOIN dataset_names s ON s.id = d.name GROUP BY 1, 2, 3 LIMIT ?2"
)
_EDGES_DOWN = (
    "SELECT t.dataset, e.job, s.dataset FROM json_each(?1) CROSS JOIN dataset_names s ON s.dataset = value"
    " JOIN columns d ON d.name = s.id JOIN edges e ON e.source = d.id{}"
    " JOIN columns c ON c.id = e.target JOIN dataset_names t ON t.id = c.name GROUP BY 1, 2, 3 LIMIT ?2"
)
_EDGES_DOWN_ALL, _EDGES_DOWN_WITHOUT_JOB = _EDGES_DOWN.format(""), _EDGES_DOWN.format(" AND e.job = 0")


class NeighbourhoodSearch:
    """A breadth-first search; `distances` has the datasets found, upstream ones negative.

    It ends at `limit` datasets and `limit` jobs; `omitted_datasets` and `omitted_jobs` were next.
    """

    def __init__(self, connection: apsw.Connection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self._max_rows = limit * ROWS_PER_DATASET
        self.distances: dict[int, int] = {}
        self.jobs: set[int] = set()
        self.reached_by: dict[int, set[int]] = {}  # dataset: the jobs through which it was found
        self._edges_without_job: set[tuple[int, int]] = set()  # source and target
        self.omitted_datasets: set[int] = set()
        self.omitted_jobs: set[int] = set()
        self.omitted_edges = 0
        self.truncated = False

    def expand(self, start: Iterable[int], direction: UpOrDown, depth: int, first: int = 1) -> None:
        """Search from these datasets, which are at the distance `first - 1`."""
        frontier = set(start)
        for distance in range(first, depth + 1):
            if not frontier:
                return
            found = self._next_level(frontier, direction)
            frontier = self._add(found, -distance if direction == "up" else distance)

    def expand_from_job(self, job: int, direction: UpOrDown, depth: int) -> None:
        """Search from the inputs (up) or outputs (down) of a job."""
        self.jobs.add(job)
        used = self._datasets_of({job}, Direction.INPUT if direction == "up" else Direction.OUTPUT)
        found = {(dataset, job) for _, dataset, _ in used}
        self.expand(self._add(found, -1 if direction == "up" else 1), direction, depth, 2)

    def _add(self, found: set[tuple[int, int]], distance: int) -> set[int]:
        new = set()
        for dataset, job in sorted(found):
            if job != NO_JOB_ID and job not in self.jobs and len(self.jobs) >= self._limit:
                self.truncated = True
                self.omitted_jobs.add(job)
                continue
            if dataset not in self.distances:
                if len(self.distances) >= self._limit:
                    self.truncated = True
                    self.omitted_datasets.add(dataset)
                    continue
                self.distances[dataset] = distance
                new.add(dataset)
            if job != NO_JOB_ID:
                self.jobs.add(job)
                self.reached_by.setdefault(dataset, set()).add(job)
        return new

    def _next_level(self, frontier: set[int], direction: UpOrDown) -> set[tuple[int, int]]:
        """The next datasets, each with a job through which it is found."""
        is_up = direction == "up"
        here, beyond = (Direction.OUTPUT, Direction.INPUT) if is_up else (Direction.INPUT, Direction.OUTPUT)
        users = rows_for(self._connection, _JOBS_OF_DATASETS, frontier, int(here), self._max_rows)
        self.truncated |= len(users) >= self._max_rows
        others: dict[int, set[int]] = {}
        for job, dataset, _ in self._datasets_of({job for _, job in users}, beyond):
            others.setdefault(job, set()).add(dataset)
        targets = frontier if is_up else {dataset for found in others.values() for dataset in found}
        listed = {
            tuple(row)
            for row in rows_for(self._connection, _WITH_LISTED_SOURCES, targets, int(Statement.LINEAGE))
        }
        found = {
            (other, job)
            for dataset, job in users
            for other in others.get(job, ())
            if ((dataset if is_up else other), job) not in listed
        }
        if is_up and not listed:
            return found
        query = _EDGES_UP if is_up else _EDGES_DOWN_ALL if listed else _EDGES_DOWN_WITHOUT_JOB
        for target, job, source in rows_for(self._connection, query, frontier, self._max_rows):
            if job == NO_JOB_ID:
                self._edges_without_job.add((source, target))
            if job == NO_JOB_ID or (target, job) in listed:
                found.add((source if is_up else target, job))
        return found

    def _datasets_of(self, jobs: set[int], direction: Direction) -> list[tuple[int, int, int]]:
        """Job, dataset, and when the job last mentioned it."""
        rows = rows_for(self._connection, _DATASETS_OF_JOBS, jobs, int(direction), self._max_rows)
        self.truncated |= len(rows) >= self._max_rows
        return [(job, dataset, last_at) for job, dataset, last_at in rows]

    def edges(self) -> list[Edge]:
        """All edges between the datasets and jobs found."""
        found = {
            Edge(key_of_dataset(source), key_of_dataset(target), True)
            for source, target in self._edges_without_job
            if source in self.distances and target in self.distances
        }
        for direction, kind in ((Direction.INPUT, Statement.INPUTS), (Direction.OUTPUT, Statement.OUTPUTS)):
            since = dict(rows_for(self._connection, _CURRENT_SINCE, self.jobs, int(kind)))
            rows = self._datasets_of(self.jobs, direction)
            if len(rows) >= self._max_rows:
                count = rows_for(
                    self._connection, _COUNT_DATASETS_OF_JOBS, self.jobs, int(direction), MAX_COUNTED
                )
                self.omitted_edges += count[0][0] - len(rows)
            for job, dataset, last_at in rows:
                if dataset in self.distances:
                    ends = (key_of_dataset(dataset), key_of_job(job))
                    source, target = ends if direction is Direction.INPUT else ends[::-1]
                    found.add(Edge(source, target, last_at >= since.get(job, last_at)))
        return sorted(found, key=lambda edge: (edge.source, edge.target))


def neighbourhood(
    connection: apsw.Connection,
    *,
    dataset: int | None,
    job: int | None,
    directions: Iterable[UpOrDown],
    depth: int,
    limit: int,
    columns: bool,
) -> Neighbourhood:
    """Datasets and jobs up to `depth` steps from dataset to dataset away."""
    search = NeighbourhoodSearch(connection, limit)
    if dataset is not None:
        search.distances[dataset] = 0
    for direction in directions:
        if dataset is not None:
            search.expand([dataset], direction, depth)
        elif job is not None:
            search.expand_from_job(job, direction, depth)
    edges = search.edges()
    columns_between: list[ColumnEdge] = []
    omitted_column_edges = 0
    if columns:
        columns_between = column_edges(connection, search.distances, MAX_EDGES)
        if len(columns_between) >= MAX_EDGES:
            count = count_column_edges(connection, search.distances, MAX_COUNTED)
            omitted_column_edges = max(0, count - len(columns_between))
    return Neighbourhood(
        key_of_dataset(dataset) if dataset is not None else key_of_job(job or NO_JOB_ID),
        dataset_nodes(connection, search.distances, columns=columns),
        job_nodes(connection, search.jobs),
        edges,
        columns_between,
        search.truncated or omitted_column_edges > 0,
        Omitted(
            datasets=len(search.omitted_datasets - search.distances.keys()),
            jobs=len(search.omitted_jobs - search.jobs),
            edges=search.omitted_edges,
            column_edges=omitted_column_edges,
            at_least=search.truncated,
        ),
    )
