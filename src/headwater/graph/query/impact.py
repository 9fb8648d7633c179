"""The datasets downstream that a change of a dataset or column affects."""

from __future__ import annotations

import apsw

from headwater.graph.query.answers import ImpactedDataset, JobNode, Omitted, id_of_key, key_of_job
from headwater.graph.query.details import dataset_nodes, job_nodes
from headwater.graph.query.neighbourhood import NeighbourhoodSearch
from headwater.graph.query.trace import ColumnTrace, field_names
from headwater.graph.store.ids import WHOLE_DATASET


def impact(
    connection: apsw.Connection, dataset: int, field: int | None, depth: int, limit: int
) -> tuple[list[ImpactedDataset], list[JobNode], bool, Omitted]:
    """The affected datasets, nearest first, the jobs on the way, and whether and what a limit cut."""
    search = ImpactSearch(connection, depth, limit)
    if field is None:
        search.expand_from_datasets({dataset: 0})
    else:
        search.expand_from_column(dataset, field)
    search.distances.pop(dataset, None)
    jobs = {job for jobs in search.jobs.values() for job in jobs}
    omitted = Omitted(datasets=len(search.omitted - search.distances.keys()), at_least=search.truncated)
    return search.datasets(), job_nodes(connection, jobs), search.truncated, omitted


class ImpactSearch:
    """The datasets that a change affects, with their columns where those are known."""

    def __init__(self, connection: apsw.Connection, depth: int, limit: int) -> None:
        self._connection = connection
        self._depth = depth
        self._limit = limit
        self._columns: dict[int, set[int]] = {}
        self._all_columns: set[int] = set()
        self.distances: dict[int, int] = {}
        self.jobs: dict[int, set[int]] = {}
        self.omitted: set[int] = set()
        self.truncated = False

    def expand_from_datasets(self, starts: dict[int, int]) -> None:
        """Add everything downstream of these datasets, which are at these distances."""
        search = NeighbourhoodSearch(self._connection, self._limit)
        search.expand(starts, ("down",), self._depth)
        self.truncated |= search.truncated
        self.omitted |= search.omitted_datasets
        for dataset, distance in search.distances.items():
            self._add(dataset, distance)
            self._all_columns.add(dataset)
            self.jobs.setdefault(dataset, set()).update(search.reached_by.get(dataset, ()))

    def expand_from_column(self, dataset: int, field: int) -> None:
        """Add everything downstream of a column, and all datasets downstream of a gap."""
        trace = ColumnTrace(self._connection, (dataset, field), indirect=True, limit=self._limit)
        trace.expand(("down",), self._depth)
        self.truncated |= trace.truncated
        self.omitted |= {other for other, _ in trace.omitted}
        self._add(dataset, 0)
        for row in trace.rows:
            other, column = row.target
            self._add(other, trace.distances[row.target])
            if column == WHOLE_DATASET:
                self._all_columns.add(other)
            else:
                self._columns.setdefault(other, set()).add(column)
            self.jobs.setdefault(other, set()).add(row.job)
        traced = {dataset for dataset, _ in trace.distances}
        beyond_gaps = {}
        for job, source, target in trace.gaps:
            if source in traced:
                beyond_gaps[target] = self.distances[source] + 1
                self.jobs.setdefault(target, set()).add(job)
        self.expand_from_datasets(beyond_gaps)

    def _add(self, dataset: int, distance: int) -> None:
        self.distances[dataset] = min(distance, self.distances.get(dataset, distance))

    def datasets(self) -> list[ImpactedDataset]:
        """The affected datasets, nearest first."""
        names = field_names(
            self._connection, {field for fields in self._columns.values() for field in fields}
        )
        found = []
        for node in dataset_nodes(self._connection, self.distances):
            id = id_of_key(node.key)
            known = None
            if id not in self._all_columns:
                known = sorted(names[field] for field in self._columns.get(id, ()) if field in names)
            jobs = sorted(key_of_job(job) for job in self.jobs.get(id, ()) if job)
            found.append(ImpactedDataset(node.key, node.namespace, node.name, node.distance, known, jobs))
        return found
