"""Queries: all that the page, the routes and the terminal ask the graph, each bounded in time and size."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import apsw

from headwater.errors import HeadwaterError
from headwater.graph.query import details, names
from headwater.graph.query import neighbourhood as walk
from headwater.graph.query import trace as traces
from headwater.graph.query.answers import (
    Dataset,
    Hit,
    Impact,
    ImpactedDataset,
    Job,
    Neighbourhood,
    Run,
    RunSummary,
    Statistic,
    Summary,
    Trace,
    key_of_job,
)
from headwater.graph.query.nodes import dataset_nodes, job_nodes
from headwater.graph.store.database import open_reader
from headwater.graph.store.ids import WHOLE
from headwater.log.queue.sqlite import select

__all__ = ["MAX_DEPTH", "MAX_LIMIT", "Query", "TooLong"]

MAX_DEPTH = 100
MAX_LIMIT = 5_000
LIMIT_SECONDS = 10.0  # of one query; whoever asks for more asks again, for less
STEPS = 20_000  # of SQLite's machine between two looks at the clock


class TooLong(HeadwaterError):
    """A query took longer than it may."""

    retryable = True


class Query:
    """A connection that only reads. Used by one thread at a time; beside a writer or without one.

    Datasets and jobs are named by namespace and name; an alias will do. Raises NotKnown for what the graph
    does not have.
    """

    def __init__(self, folder: Path, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.connection = open_reader(folder)
        self._limit_seconds = limit_seconds
        self._until = float("inf")
        self.connection.set_progress_handler(lambda: time.monotonic() > self._until, STEPS)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One view of the graph for all statements inside, within the time that a query may take."""
        self._until = time.monotonic() + self._limit_seconds
        try:
            with self.connection:
                yield self.connection
        except apsw.InterruptError:
            raise TooLong(
                f"The query took longer than {self._limit_seconds:g} seconds.",
                hint="Ask with a smaller depth or limit.",
            ) from None
        finally:
            self._until = float("inf")

    def summary(self) -> Summary:
        """How much the graph holds, and how fresh it is."""
        with self.reading() as connection:
            return details.summary(connection)

    def search(
        self,
        text: str,
        *,
        kinds: Iterable[str] = ("dataset", "job", "column"),
        namespace: str = "",
        limit: int = 50,
    ) -> list[Hit]:
        """Datasets, jobs and columns whose names hold all words of the text, the closest first.

        For no text at all: the datasets and jobs that events mentioned last.
        """
        with self.reading() as connection:
            return names.search(connection, text, kinds=kinds, namespace=namespace, limit=_within(limit))

    def dataset(self, namespace: str, name: str) -> Dataset:
        """A dataset with its schema and the changes of it, its users, statistics over time, and facets."""
        with self.reading() as connection:
            return details.dataset(connection, names.find_dataset(connection, namespace, name))

    def job(self, namespace: str, name: str) -> Job:
        """A job with what it reads and writes, and its latest runs."""
        with self.reading() as connection:
            return details.job(connection, names.find_job(connection, namespace, name))

    def run(self, id: str) -> Run:
        """A run with its timing, error, inputs and outputs."""
        with self.reading() as connection:
            return details.run(connection, id)

    def runs(
        self, namespace: str = "", job: str = "", *, limit: int = 100, offset: int = 0
    ) -> list[RunSummary]:
        """The runs of a job, or all, newest first."""
        with self.reading() as connection:
            id = names.find_job(connection, namespace, job) if job else None
            return details.runs_of(connection, job=id, limit=_within(limit), offset=max(0, offset))

    def statistics(self, namespace: str, name: str, *, limit: int = 200) -> list[Statistic]:
        """What the latest runs told about a dataset, newest first."""
        with self.reading() as connection:
            id = names.find_dataset(connection, namespace, name)
            return details.statistics(connection, id, _within(limit))

    def neighbourhood(
        self,
        namespace: str,
        name: str,
        *,
        kind: str = "dataset",
        direction: walk.Ways = "both",
        depth: int = 2,
        limit: int = 300,
        columns: bool = False,
    ) -> Neighbourhood:
        """What is around a dataset or job, up to `depth` steps from dataset to dataset away."""
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name) if kind == "dataset" else None
            job = names.find_job(connection, namespace, name) if kind == "job" else None
            return walk.neighbourhood(
                connection,
                dataset=dataset,
                job=job,
                direction=direction,
                depth=_deep(depth),
                limit=_within(limit),
                columns=columns,
            )

    def trace(
        self,
        namespace: str,
        name: str,
        column: str,
        *,
        direction: walk.Ways = "both",
        depth: int = 20,
        indirect: bool = True,
        limit: int = 1_000,
    ) -> Trace:
        """Where a column comes from and what is made of it; `indirect` also follows filters, joins, …"""
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            field = names.find_column(connection, dataset, column)
            return traces.trace(
                connection,
                dataset,
                field,
                column,
                ways=walk.ways(direction),
                depth=_deep(depth),
                indirect=indirect,
                limit=_within(limit),
            )

    def impact(
        self, namespace: str, name: str, column: str | None = None, *, depth: int = 50, limit: int = 1_000
    ) -> Impact:
        """What a change of a dataset, or of one column, reaches downstream, nearest first.

        Where a job on the way told nothing about columns, all that it writes counts as reached (G11).
        """
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            reached = _Reached(connection, _deep(depth), _within(limit))
            if column is None:
                reached.by_dataset({dataset: 0})
            else:
                reached.by_column(dataset, names.find_column(connection, dataset, column))
            reached.distances.pop(dataset, None)
            found = reached.datasets()
            jobs = job_nodes(connection, {job for jobs in reached.jobs.values() for job in jobs})
            return Impact(namespace, name, column, found, jobs, reached.truncated)

    def named(self, text: str) -> tuple[str, str, str | None]:
        """Namespace and name of the dataset, and the column, that a person means by one text."""
        with self.reading() as connection:
            id, column = names.named(connection, text)
            query = "SELECT namespace, name FROM names WHERE id = ?"
            namespace, name = select(connection, query, id)[0]
            return namespace, name, column

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Reached:
    """Datasets that a change reaches: with their columns where those are known."""

    def __init__(self, connection: apsw.Connection, depth: int, limit: int) -> None:
        self._connection = connection
        self._depth = depth
        self._limit = limit
        self.distances: dict[int, int] = {}
        self.columns: dict[int, set[int]] = {}
        self.wholly: set[int] = set()
        self.jobs: dict[int, set[int]] = {}
        self.truncated = False

    def by_dataset(self, starts: dict[int, int]) -> None:
        for start, distance in starts.items():
            walked = walk.Walk(self._connection, self._limit)
            walked.distances[start] = 0
            walked.go([start], "down", self._depth - distance)
            self.truncated |= walked.truncated
            for dataset, further in walked.distances.items():
                self._reach(dataset, distance + further)
                self.wholly.add(dataset)
                self.jobs.setdefault(dataset, set()).update(walked.reached_by.get(dataset, ()))

    def by_column(self, dataset: int, field: int) -> None:
        tracing = traces.Tracing(self._connection, (dataset, field), indirect=True, limit=self._limit)
        tracing.go("down", self._depth)
        self.truncated |= tracing.truncated
        self._reach(dataset, 0)
        for step in tracing.steps:
            other, column = step.target
            self._reach(other, tracing.distances[step.target])
            if column == WHOLE:
                self.wholly.add(other)
            else:
                self.columns.setdefault(other, set()).add(column)
            self.jobs.setdefault(other, set()).add(step.job)
        # behind a gap nothing is known but that something is made of it
        near = {dataset for dataset, _ in tracing.distances}
        behind = {}
        for job, source, target in tracing.gaps:
            if source in near:
                behind[target] = self.distances[source] + 1
                self.jobs.setdefault(target, set()).add(job)
        self.by_dataset(behind)

    def _reach(self, dataset: int, distance: int) -> None:
        self.distances[dataset] = min(distance, self.distances.get(dataset, distance))

    def datasets(self) -> list[ImpactedDataset]:
        fields = {field for columns in self.columns.values() for field in columns}
        texts = traces.texts_of(self._connection, fields)
        nodes = dataset_nodes(self._connection, self.distances)
        found = []
        for node in nodes:
            id = int(node.key[1:], 16)
            known = (
                None
                if id in self.wholly
                else sorted(texts[f] for f in self.columns.get(id, ()) if f in texts)
            )
            jobs = sorted(key_of_job(job) for job in self.jobs.get(id, ()) if job)
            found.append(ImpactedDataset(node.key, node.namespace, node.name, node.distance, known, jobs))
        return found


def _deep(depth: int) -> int:
    return max(0, min(depth, MAX_DEPTH))


def _within(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))
