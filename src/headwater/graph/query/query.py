"""GraphQuery: the queries of page, HTTP API and terminal, each bounded in time and size."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import apsw

from headwater.errors import HeadwaterError
from headwater.graph.query import details, names
from headwater.graph.query.answers import (
    Dataset,
    Impact,
    Job,
    LineageDirection,
    Neighbourhood,
    Run,
    RunSummary,
    SearchResult,
    Statistic,
    Summary,
    Trace,
    directions,
)
from headwater.graph.query.impact import impact
from headwater.graph.query.neighbourhood import neighbourhood
from headwater.graph.query.search import search
from headwater.graph.query.trace import trace
from headwater.graph.store.database import open_reader
from headwater.log.queue.sqlite import select

MAX_DEPTH = 100
MAX_LIMIT = 5_000
LIMIT_SECONDS = 10.0  # of one query
STEPS = 20_000  # of SQLite's virtual machine between two checks of the time


class QueryTimeout(HeadwaterError):
    """A query exceeded its time limit."""

    retryable = True


class GraphQuery:
    """A read-only connection, used by one thread at a time, with or without a running writer.

    Datasets and jobs are named by namespace and name, or by an alias. Raises NotFound for an unknown name.
    """

    def __init__(self, folder: Path, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.connection = open_reader(folder)
        self._limit_seconds = limit_seconds
        self._until = float("inf")
        self.connection.set_progress_handler(lambda: time.monotonic() > self._until, STEPS)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One snapshot of the graph for all statements inside, within the time limit of a query."""
        self._until = time.monotonic() + self._limit_seconds
        try:
            with self.connection:
                yield self.connection
        except apsw.InterruptError:
            raise QueryTimeout(
                f"The query took longer than {self._limit_seconds:g} seconds.",
                hint="Use a smaller depth or limit.",
            ) from None
        finally:
            self._until = float("inf")

    def summary(self) -> Summary:
        """How many nodes the graph has, and its latest event."""
        with self.reading() as connection:
            return details.summary(connection)

    def search(
        self,
        text: str,
        *,
        kinds: Iterable[str] = ("dataset", "job", "column"),
        namespace: str = "",
        limit: int = 50,
    ) -> list[SearchResult]:
        """Datasets, jobs and columns whose names contain all words of the text, the closest first.

        Without a text: the datasets and jobs that events mentioned last.
        """
        with self.reading() as connection:
            return search(connection, text, kinds=kinds, namespace=namespace, limit=_bounded_limit(limit))

    def dataset(self, namespace: str, name: str) -> Dataset:
        """A dataset with its schema versions, jobs, statistics over time, and facets."""
        with self.reading() as connection:
            return details.dataset(connection, names.find_dataset(connection, namespace, name))

    def job(self, namespace: str, name: str) -> Job:
        """A job with its inputs, outputs, and latest runs."""
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
            return details.runs_of(connection, job=id, limit=_bounded_limit(limit), offset=max(0, offset))

    def statistics(self, namespace: str, name: str, *, limit: int = 200) -> list[Statistic]:
        """The statistics that the latest runs reported about a dataset, newest first."""
        with self.reading() as connection:
            id = names.find_dataset(connection, namespace, name)
            return details.statistics(connection, id, _bounded_limit(limit))

    def neighbourhood(
        self,
        namespace: str,
        name: str,
        *,
        kind: str = "dataset",
        direction: LineageDirection = "both",
        depth: int = 2,
        limit: int = 300,
        columns: bool = False,
    ) -> Neighbourhood:
        """Datasets and jobs up to `depth` steps from dataset to dataset away from a dataset or job."""
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name) if kind == "dataset" else None
            job = names.find_job(connection, namespace, name) if kind == "job" else None
            return neighbourhood(
                connection,
                dataset=dataset,
                job=job,
                direction=direction,
                depth=_bounded_depth(depth),
                limit=_bounded_limit(limit),
                columns=columns,
            )

    def trace(
        self,
        namespace: str,
        name: str,
        column: str,
        *,
        direction: LineageDirection = "both",
        depth: int = 20,
        indirect: bool = True,
        limit: int = 1_000,
    ) -> Trace:
        """The columns upstream and downstream of one; `indirect` also follows filters, joins, …"""
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            field = names.find_column(connection, dataset, column)
            return trace(
                connection,
                dataset,
                field,
                column,
                directions=directions(direction),
                depth=_bounded_depth(depth),
                indirect=indirect,
                limit=_bounded_limit(limit),
            )

    def impact(
        self, namespace: str, name: str, column: str | None = None, *, depth: int = 50, limit: int = 1_000
    ) -> Impact:
        """The datasets downstream that a change of a dataset, or of one column, affects, nearest first.

        If a job on the way reports no column lineage, everything downstream of it counts as affected (G11).
        """
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            field = names.find_column(connection, dataset, column) if column is not None else None
            depth, limit = _bounded_depth(depth), _bounded_limit(limit)
            datasets, jobs, truncated = impact(connection, dataset, field, depth, limit)
            return Impact(namespace, name, column, datasets, jobs, truncated)

    def resolve(self, text: str) -> tuple[str, str, str | None]:
        """Namespace and name of the dataset, and the column, that a typed text stands for."""
        with self.reading() as connection:
            id, column = names.resolve(connection, text)
            query = "SELECT namespace, name FROM names WHERE id = ?"
            namespace, name = select(connection, query, id)[0]
            return namespace, name, column

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> GraphQuery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bounded_depth(depth: int) -> int:
    return max(0, min(depth, MAX_DEPTH))


def _bounded_limit(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))
