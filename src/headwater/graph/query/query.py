"""GraphQuery: the queries of page, HTTP API and command line, each bounded in time and size.

Most endpoints of the HTTP API are made from a method: its parameters are those of the endpoint, and its first
paragraph is the description.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, TypeVar, cast

import apsw
from msgspec import Meta

from headwater.errors import HeadwaterError, LogUnavailable
from headwater.graph.query import details, names
from headwater.graph.query.answers import (
    CatalogueEntry,
    CataloguePage,
    ColumnEdge,
    Dataset,
    DatasetNode,
    Impact,
    Job,
    LineageDirection,
    NamespaceSummary,
    Neighbourhood,
    Run,
    RunSummary,
    SearchResult,
    Statistic,
    Summary,
    Trace,
    directions,
    id_of_key,
)
from headwater.graph.query.boxes import DrawingDetails, drawing_details
from headwater.graph.query.budget import LIMIT_SECONDS, Budget, ClientGone, QueryTimeout, QueryTooLarge
from headwater.graph.query.catalogue import CatalogueKind, Sort, StateFilter, catalogue, described, namespaces
from headwater.graph.query.compare import Comparison, compare
from headwater.graph.query.impact import impact
from headwater.graph.query.neighbourhood import neighbourhood
from headwater.graph.query.search import count_matches, search
from headwater.graph.query.trace import edges_of_dataset, trace
from headwater.graph.store.database import FILE, open_reader
from headwater.graph.store.ids import Kind
from headwater.log.queue.sqlite import classify, is_damage, select
from headwater.system.durable_files import identity

__all__ = ["ClientGone", "Depth", "GraphQuery", "Limit", "Offset", "QueryTimeout", "QueryTooLarge"]

logger = logging.getLogger(__name__)

MAX_DEPTH = 100
MAX_LIMIT = 5_000
MAX_CACHED = 16  # drawings, each some hundred kilobytes at most
SLOW_SECONDS = 0.05  # of a count of whole tables
SHARE = 20  # a slow count is repeated after so many times its duration
STEPS = 20_000  # of SQLite's virtual machine between two checks of the budget


T = TypeVar("T")
Limit = Annotated[int, Meta(ge=0, le=MAX_LIMIT)]
Offset = Annotated[int, Meta(ge=0, le=100_000_000)]
Depth = Annotated[int, Meta(ge=0, le=MAX_DEPTH)]


class GraphQuery:
    """A read-only connection, used by one thread at a time, with or without a running writer.

    Datasets and jobs are named by namespace and name, or by an alias. Raises NotFound for an unknown name.
    """

    def __init__(self, folder: Path, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._folder = folder
        self._limit_seconds = limit_seconds
        self._budget: Budget | None = None
        self._open()

    def _open(self) -> None:
        file = identity(self._folder / FILE)
        self.connection = open_reader(self._folder)
        self._file = file
        self._cache: dict[Hashable, Any] = {}
        self._cache_version = -1
        self._summary: Summary | None = None
        self._summary_until = 0.0
        # A long statement is interrupted, and every statement and row is counted.
        self.connection.set_progress_handler(self._is_over, STEPS)
        self.connection.exec_trace = self._count_statement
        self.connection.row_trace = self._count_row

    @contextmanager
    def bounded(self, is_abandoned: Callable[[], bool] = lambda: False) -> Iterator[Budget]:
        """One budget for all queries inside, which end early when `is_abandoned`."""
        if self._budget is not None:
            yield self._budget
            return
        if identity(self._folder / FILE) != self._file:  # it was damaged, and another one took its place
            self.connection.close()
            self._open()
        budget = self._budget = Budget(self._limit_seconds, is_abandoned=is_abandoned)
        try:
            yield budget
        except apsw.InterruptError:
            budget.check()
            raise
        except apsw.Error as error:
            if not is_damage(error):
                raise classify(error, self._folder) from error
            raise self._damaged(f"is damaged ({error})") from error
        finally:
            self._budget = None

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One snapshot of the graph for all statements inside, within the budget of a question."""
        with self.bounded() as budget:
            try:
                with self.connection:
                    yield self.connection
            except apsw.InterruptError:
                budget.check()
                raise
            except (HeadwaterError, apsw.Error):
                raise
            except Exception as error:  # a damaged page may still decode, to any values
                kind = type(error).__name__
                logger.exception("A query cannot interpret the graph.")
                raise self._damaged(f"holds values that cannot be interpreted ({kind}: {error})") from error

    def _damaged(self, what: str) -> LogUnavailable:
        file = self._folder / FILE
        return LogUnavailable(
            f"{file} {what}.",
            hint=f"Stop the server, run `rm {file}*`, start it: it ingests the events of the log again.",
        )

    def work(self, steps: int) -> None:
        """Count work of the current question beyond its queries, such as that of a layout."""
        if self._budget is not None:
            self._budget.work(steps)

    def _is_over(self) -> bool:
        return self._budget is not None and self._budget.error() is not None

    def _count_statement(self, cursor: Any, sql: str, bindings: Any) -> bool:
        if self._budget is not None and cursor is not self.connection:  # savepoints come from the connection
            self._budget.check()
        return True

    def _count_row(self, cursor: Any, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._budget is not None:
            self._budget.row(row)
        return row

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, or returned for this key since the graph last changed."""
        with self.reading() as connection:
            version = connection.pragma("data_version")
        if version != self._cache_version:
            self._cache.clear()
            self._cache_version = version
        if key not in self._cache:
            self._cache[key] = make()
            if len(self._cache) > MAX_CACHED:
                del self._cache[next(iter(self._cache))]
        return cast(T, self._cache[key])

    def summary(self) -> Summary:
        """The numbers of nodes in the graph, and the time of its latest event.

        Counting reads whole tables: those of a large graph are counted in a twentieth of the time.
        """
        began = time.monotonic()
        with self.reading() as connection:
            if self._summary is None or began >= self._summary_until:
                self._summary = details.summary(connection)
                took = time.monotonic() - began
                self._summary_until = began + (SHARE * took if took > SLOW_SECONDS else 0.0)
            return self._summary

    def integrations(self, without: str = "") -> set[str]:
        """What the jobs of the latest events run on, such as SPARK, except those of one namespace."""
        with self.reading() as connection:
            return details.integrations(connection, without)

    def search(
        self,
        text: str,
        *,
        kinds: Iterable[str] = ("dataset", "job", "column"),
        namespace: str = "",
        limit: Limit = 50,
    ) -> list[SearchResult]:
        """Datasets, jobs and columns whose names contain all words of a text; without one, the latest."""
        with self.reading() as connection:
            return search(connection, text, kinds=kinds, namespace=namespace, limit=_bounded_limit(limit))

    def count_matches(
        self, text: str, *, kinds: Iterable[str] = ("dataset", "job"), namespace: str = ""
    ) -> int:
        """How many datasets and jobs `search` would find without a limit; of each at most 20,000."""
        with self.reading() as connection:
            return sum(
                count_matches(connection, text.strip(), Kind[kind.upper()], namespace) for kind in kinds
            )

    def namespaces(self, limit: Limit = 1_000, q: str = "") -> list[NamespaceSummary]:
        """The namespaces that contain a text, with their numbers of datasets and jobs, the largest first."""
        with self.reading() as connection:
            return namespaces(connection, _bounded_limit(limit), q)

    def catalogue(
        self,
        kind: CatalogueKind = "dataset",
        *,
        namespace: str = "",
        q: str = "",
        state: StateFilter = "",
        owner: str = "",
        tag: str = "",
        sort: Sort = "name",
        after: str = "",
        limit: Limit = 50,
    ) -> CataloguePage:
        """Datasets or jobs by name or by their last update, in pages: those whose names contain all words.

        `state` is that of the latest run of a job, or of the latest that wrote a dataset; `tag` is a key, or
        `key: value`. `after` is `next_after` of the page before.
        """
        with self.reading() as connection:
            return catalogue(
                connection,
                kind,
                namespace=namespace,
                words=q,
                state=state,
                owner=owner,
                tag=tag,
                sort=sort,
                after=after,
                limit=_bounded_limit(limit),
            )

    def dataset(self, namespace: str, name: str) -> Dataset:
        """A dataset with its schema versions, jobs, statistics over time, and facets."""
        with self.reading() as connection:
            return details.dataset(connection, names.find_dataset(connection, namespace, name))

    def job(self, namespace: str, name: str) -> Job:
        """A job with its inputs, outputs, latest runs, and facets."""
        with self.reading() as connection:
            return details.job(connection, names.find_job(connection, namespace, name))

    def run(self, id: str) -> Run:
        """A run with its timing, error, inputs, outputs, children, and facets."""
        with self.reading() as connection:
            return details.run(connection, id)

    def run_tree(self, id: str) -> tuple[list[RunSummary], bool]:
        """The runs of the tree that a run is in, parents first, and whether there may be more."""
        with self.reading() as connection:
            return details.run_tree(connection, id)

    def runs(
        self, namespace: str = "", job: str = "", *, limit: Limit = 100, offset: Offset = 0
    ) -> list[RunSummary]:
        """The runs of a job, or all runs, newest first."""
        limit, offset = _bounded_limit(limit), max(0, offset)
        with self.reading() as connection:
            if not job:
                return details.runs(connection, limit=limit, offset=offset)
            id = names.find_job(connection, namespace, job)
            return details.runs_of_job(connection, id, limit=limit, offset=offset)

    def statistics(self, namespace: str, name: str, *, limit: Limit = 200) -> list[Statistic]:
        """Rows, bytes and files that the latest runs reported about a dataset, newest first."""
        with self.reading() as connection:
            id = names.find_dataset(connection, namespace, name)
            return details.statistics(connection, id, _bounded_limit(limit))

    def neighbourhood(
        self,
        namespace: str,
        name: str,
        *,
        kind: Literal["dataset", "job"] = "dataset",
        direction: LineageDirection = "both",
        depth: Depth = 2,
        limit: Limit = 300,
        columns: bool = False,
        all_jobs: bool = False,
    ) -> Neighbourhood:
        """Datasets and jobs around one; `columns` adds columns and the edges between them.

        `depth` counts steps from dataset to dataset. `all_jobs` adds jobs that only read, or only write.
        """
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name) if kind == "dataset" else None
            job = names.find_job(connection, namespace, name) if kind == "job" else None
            return neighbourhood(
                connection,
                dataset=dataset,
                job=job,
                directions=directions(direction),
                depth=_bounded_depth(depth),
                limit=_bounded_limit(limit),
                columns=columns,
                all_jobs=all_jobs,
            )

    def drawing_details(
        self, keys: Iterable[str], opened: Collection[str], with_columns: Collection[str]
    ) -> DrawingDetails:
        """What a drawing of these datasets shows in its boxes, and the lines between them."""
        with self.reading() as connection:
            return drawing_details(connection, keys, opened, with_columns)

    def trace(
        self,
        namespace: str,
        name: str,
        column: str,
        *,
        direction: LineageDirection = "both",
        depth: Depth = 20,
        indirect: bool = True,
        limit: Limit = 1_000,
    ) -> Trace:
        """The columns upstream and downstream of a column.

        `indirect` also follows filters, joins, …
        """
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            names.find_column(connection, dataset, column)
            return trace(
                connection,
                dataset,
                column,
                directions=directions(direction),
                depth=_bounded_depth(depth),
                indirect=indirect,
                limit=_bounded_limit(limit),
            )

    def edges_of_dataset(
        self, namespace: str, name: str, *, limit: int
    ) -> tuple[list[ColumnEdge], list[DatasetNode], bool]:
        """The edges of a dataset's columns, the datasets at their ends, and whether there are more."""
        with self.reading() as connection:
            return edges_of_dataset(connection, names.find_dataset(connection, namespace, name), limit)

    def impact(
        self,
        namespace: str,
        name: str,
        column: str | None = None,
        *,
        depth: Depth = 50,
        limit: Limit = 1_000,
    ) -> Impact:
        """The datasets downstream that a change of a dataset, or of one column, affects.

        If a job on the way reports no column lineage, everything downstream of it counts as affected (G11).
        """
        with self.reading() as connection:
            dataset = names.find_dataset(connection, namespace, name)
            field = names.find_column(connection, dataset, column) if column is not None else None
            depth, limit = _bounded_depth(depth), _bounded_limit(limit)
            datasets, jobs, truncated, omitted = impact(connection, dataset, field, depth, limit)
            return Impact(namespace, name, column, datasets, jobs, truncated, omitted)

    def compare(self, namespace: str, name: str, before: int, after: int) -> Comparison:
        """The edges at a dataset's columns that two moments, in microseconds, do not share."""
        with self.reading() as connection:
            return compare(connection, names.find_dataset(connection, namespace, name), before, after)

    def entries(self, keys: Iterable[str]) -> dict[str, CatalogueEntry]:
        """The catalogue's entries of datasets, by their keys."""
        ids = {id_of_key(key): key for key in keys}
        with self.reading() as connection:
            return {ids[id]: entry for id, entry in described(connection, ids).items()}

    def resolve(self, text: str) -> tuple[str, str, str | None]:
        """Namespace and name of the dataset, and the column, that a typed text stands for."""
        with self.reading() as connection:
            id, column = names.resolve(connection, text)
            query = "SELECT namespace, name FROM dataset_names WHERE id = ?"
            namespace, name = select(connection, query, id)[0]
            return namespace, name, column

    def dataset_name(self, namespace: str, name: str) -> None:
        """Raise NotFound unless this is a name of a dataset."""
        with self.reading() as connection:
            names.find_dataset(connection, namespace, name)

    def resolve_name(self, text: str) -> int:
        """The id of the one name of a dataset that a typed text is."""
        with self.reading() as connection:
            return names.resolve_name(connection, text)

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
