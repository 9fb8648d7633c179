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
from headwater.graph.query.failed_writes import failed_writes
from headwater.graph.query.trace import column_edges, count_column_edges, in_turns
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


_ACTIVITY = (
    "SELECT n.id FROM json_each(?1) AS j CROSS JOIN dataset_names n ON n.id = j.value"
    " ORDER BY n.last_at DESC, n.namespace, n.name"
)
_JOB_ACTIVITY = (
    "SELECT n.id FROM json_each(?1) AS j CROSS JOIN jobs n ON n.id = j.value"
    " ORDER BY n.last_at DESC, n.namespace, n.name"
)
_Found = dict[int, set[int]]  # a dataset, and the jobs through which it is found


class NeighbourhoodSearch:
    """A breadth-first search; `distances` has the datasets found, upstream ones negative.

    It ends at `limit` datasets and `limit` jobs; `omitted_datasets` and `omitted_jobs` were next. The
    directions take turns, so neither uses up the limit of the other. Of equally near datasets and jobs, those
    that events mentioned last are kept.
    """

    def __init__(self, connection: apsw.Connection, limit: int, *, all_jobs: bool = False) -> None:
        self._connection = connection
        self._limit = limit
        self._all_jobs = all_jobs
        self._max_rows = limit * ROWS_PER_DATASET
        self.distances: dict[int, int] = {}
        self.jobs: set[int] = set()
        self.reached_by: dict[int, set[int]] = {}  # dataset: the jobs through which it was found
        self._edges_without_job: set[tuple[int, int]] = set()  # source and target
        self.omitted_datasets: set[int] = set()
        self.omitted_jobs: set[int] = set()
        self.omitted_edges = 0
        self.truncated = False

    def expand(self, starts: dict[int, int], directions: Iterable[UpOrDown], depth: int) -> None:
        """Search from these datasets, which are at these distances, up to `depth` steps away."""
        self.distances |= {dataset: 0 for dataset, distance in starts.items() if distance == 0}
        self._expand(dict.fromkeys(directions, starts), depth)

    def expand_from_job(self, job: int, directions: Iterable[UpOrDown], depth: int) -> None:
        """Search from the inputs (up) or outputs (down) of a job."""
        self.jobs.add(job)
        found: dict[UpOrDown, _Found] = {}
        for direction in directions:
            used = self._datasets_of({job}, Direction.INPUT if direction == "up" else Direction.OUTPUT)
            found[direction] = {dataset: {job} for _, dataset, _ in used}
        self._expand(
            {direction: dict.fromkeys(new, 1) for direction, new in self._add(found, 1).items()}, depth
        )

    def _expand(self, starts: dict[UpOrDown, dict[int, int]], depth: int) -> None:
        frontiers: dict[UpOrDown, set[int]] = {direction: set() for direction in starts}
        least = min((distance for of in starts.values() for distance in of.values()), default=depth)
        for distance in range(least, depth):
            for direction, of in starts.items():
                here = -distance if direction == "up" else distance
                frontiers[direction] |= {
                    start
                    for start, at in of.items()
                    if at == distance and self.distances.setdefault(start, here) == here
                }
            found = {
                direction: self._next_level(frontier, direction)
                for direction, frontier in frontiers.items()
                if frontier
            }
            new = self._add(found, distance + 1)
            frontiers = {direction: new.get(direction, set()) for direction in starts}

    def _add(self, found: dict[UpOrDown, _Found], distance: int) -> dict[UpOrDown, set[int]]:
        """Add what one level of each direction found; returns the new datasets of each."""
        activity = self._by_activity(_ACTIVITY, {dataset for of in found.values() for dataset in of})
        job_activity = self._by_activity(
            _JOB_ACTIVITY, {job for of in found.values() for jobs in of.values() for job in jobs}
        )
        new: dict[UpOrDown, set[int]] = {direction: set() for direction in found}
        ranked = (
            [(direction, dataset) for dataset in sorted(of, key=lambda id: activity.get(id, 0))]
            for direction, of in found.items()
        )
        for direction, dataset in in_turns(ranked):
            jobs = found[direction][dataset]
            for job in sorted(jobs, key=lambda id: job_activity.get(id, 0)):
                if job != NO_JOB_ID and job not in self.jobs and len(self.jobs) >= self._limit:
                    self.truncated = True
                    self.omitted_jobs.add(job)
                    continue
                if dataset not in self.distances:
                    if len(self.distances) >= self._limit:
                        self.truncated = True
                        self.omitted_datasets.add(dataset)
                        continue
                    self.distances[dataset] = -distance if direction == "up" else distance
                    new[direction].add(dataset)
                if job != NO_JOB_ID:
                    self.jobs.add(job)
                    self.reached_by.setdefault(dataset, set()).add(job)
        return new

    def _add_jobs(self, jobs: set[int]) -> None:
        """Add jobs through which no further dataset may be found."""
        left = max(0, self._limit - len(self.jobs))
        ranked = list(self._by_activity(_JOB_ACTIVITY, jobs - self.jobs))
        self.jobs |= {*ranked[:left]}
        self.omitted_jobs |= {*ranked[left:]}
        self.truncated |= len(ranked) > left

    def _by_activity(self, query: str, ids: set[int]) -> dict[int, int]:
        """The place of each in the order of the last mention, the latest first."""
        return {id: place for place, (id,) in enumerate(rows_for(self._connection, query, ids))}

    def _next_level(self, frontier: set[int], direction: UpOrDown) -> _Found:
        """The next datasets, each with the jobs through which it is found."""
        is_up = direction == "up"
        here, beyond = (Direction.OUTPUT, Direction.INPUT) if is_up else (Direction.INPUT, Direction.OUTPUT)
        users = rows_for(self._connection, _JOBS_OF_DATASETS, frontier, int(here), self._max_rows)
        self.truncated |= len(users) >= self._max_rows
        if self._all_jobs:
            self._add_jobs({job for _, job in users})
        others: dict[int, set[int]] = {}
        for job, dataset, _ in self._datasets_of({job for _, job in users}, beyond):
            others.setdefault(job, set()).add(dataset)
        targets = frontier if is_up else {dataset for found in others.values() for dataset in found}
        listed = {
            tuple(row)
            for row in rows_for(self._connection, _WITH_LISTED_SOURCES, targets, int(Statement.LINEAGE))
        }
        found: _Found = {}
        for dataset, job in users:
            for other in others.get(job, ()):
                if ((dataset if is_up else other), job) not in listed:
                    found.setdefault(other, set()).add(job)
        if is_up and not listed:
            return found
        query = _EDGES_UP if is_up else _EDGES_DOWN_ALL if listed else _EDGES_DOWN_WITHOUT_JOB
        for target, job, source in rows_for(self._connection, query, frontier, self._max_rows):
            if job == NO_JOB_ID:
                self._edges_without_job.add((source, target))
            if job == NO_JOB_ID or (target, job) in listed:
                found.setdefault(source if is_up else target, set()).add(job)
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
            writes = {(dataset, job) for job, dataset, _ in rows if dataset in self.distances}
            failed = failed_writes(self._connection, writes if direction is Direction.OUTPUT else ())
            for job, dataset, last_at in rows:
                if dataset in self.distances:
                    ends = (key_of_dataset(dataset), key_of_job(job))
                    source, target = ends if direction is Direction.INPUT else ends[::-1]
                    is_current = last_at >= since.get(job, last_at)
                    found.add(Edge(source, target, is_current, (dataset, job) in failed))
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
    all_jobs: bool = False,
) -> Neighbourhood:
    """Datasets and jobs up to `depth` steps from dataset to dataset away."""
    search = NeighbourhoodSearch(connection, limit, all_jobs=all_jobs)
    if dataset is not None:
        search.expand({dataset: 0}, directions, depth)
    elif job is not None:
        search.expand_from_job(job, directions, depth)
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
