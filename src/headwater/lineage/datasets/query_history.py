"""The origin of the columns of earlier queries, by expression id.

A checkpoint, `foreachBatch` and the like start a new plan at bare rows, but keep the expression ids of the
query that made them, which are unique in the application. So the lineage of these columns in the first
plan holds for the second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.lineage.columns.edge_sets import Edges, bits
from headwater.lineage.extend.builders import InputDatasetBuilder
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.columns.column_graph import ColumnGraph

LIMIT = 200_000


class Edge(NamedTuple):
    """An edge by names, independent of a plan."""

    datasets: tuple[DatasetId, ...]
    path: tuple[str, ...]
    pointer: str
    kind: int


class ColumnOrigin(NamedTuple):
    """The edges of a column, and those that chose its rows."""

    edges: tuple[Edge, ...]
    rows: tuple[Edge, ...]


Dataset = tuple[DatasetId, dict[str, Any]]


class _Entry:
    """The datasets of the query of one expression id, and the edges of its column."""

    __slots__ = ("datasets", "origin")

    def __init__(self) -> None:
        self.datasets: tuple[Dataset, ...] = ()
        self.origin: ColumnOrigin | None = None

    @property
    def size(self) -> int:
        return 1 + (len(self.origin.edges) if self.origin is not None else 0)


class QueryHistory:
    """The columns of the last queries; at most `limit` ids and edges, the oldest are dropped first (G8)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._lock = Lock()

    def record(self, expr_ids: Iterable[int], inputs: Iterable[InputDatasetBuilder]) -> None:
        """Record that these columns came from these inputs."""
        datasets = tuple((each.id, dict(each.facets)) for each in inputs)
        if not datasets:
            return
        with self._lock:
            for number in expr_ids:
                self._set(number, datasets=datasets)
            self._shrink()

    def record_columns(self, graph: ColumnGraph, number: int) -> None:
        """Record the edges of the columns of a node whose columns are in the plan document."""
        rows = tuple(_edges(graph, graph.row_edges[number]))
        columns = list(zip(graph.plan.nodes[number].out, graph.columns(number), strict=True))
        with self._lock:
            for attribute, value in columns:
                self._set(attribute.id, origin=ColumnOrigin(tuple(_edges(graph, value.edges)), rows))
            self._shrink()

    def find(self, expr_ids: Iterable[int]) -> list[Dataset]:
        """The inputs of columns, each once."""
        found: dict[DatasetId, dict[str, Any]] = {}
        with self._lock:
            for number in expr_ids:
                if (entry := self._entries.get(number)) is not None:
                    for id, facets in entry.datasets:
                        found.setdefault(id, facets)
        return list(found.items())

    def find_column(self, expr_id: int) -> ColumnOrigin | None:
        """The edges of a column."""
        with self._lock:
            entry = self._entries.get(expr_id)
            return entry.origin if entry is not None else None

    def _set(
        self, number: int, *, datasets: tuple[Dataset, ...] = (), origin: ColumnOrigin | None = None
    ) -> None:
        entry = self._entries.pop(number, None)
        if entry is None:
            entry = _Entry()
        else:
            self._size -= entry.size
        entry.datasets = datasets or entry.datasets
        entry.origin = origin or entry.origin
        self._entries[number] = entry
        self._size += entry.size

    def _shrink(self) -> None:
        while self._size > self._limit and self._entries:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.size


def _edges(graph: ColumnGraph, edges: Edges) -> Iterator[Edge]:
    for kind, mask in edges.masks.items():
        for place in bits(mask):
            source = graph.sources.all[place]
            yield Edge(source.datasets, source.path, source.pointer, kind)
