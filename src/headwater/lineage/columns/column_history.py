"""Column lineage that outlives its query.

A checkpointed frame or a micro-batch starts from bare rows, but keeps the expression ids of the query that
made them, which are unique in the whole application.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from headwater.lineage.columns.edges import Edges, bits
from headwater.lineage.naming.names import DatasetId

if TYPE_CHECKING:
    from headwater.lineage.columns.graph import Graph

__all__ = ["ColumnMemory", "Remembered"]


class Edge(NamedTuple):
    """An edge by names, without a plan."""

    datasets: tuple[DatasetId, ...]
    path: tuple[str, ...]
    pointer: str
    kind: int


class Remembered(NamedTuple):
    """What a column was made of, and what chose the rows that it stood in."""

    edges: tuple[Edge, ...]
    rows: tuple[Edge, ...]


class ColumnMemory:
    """The columns of the last queries by expression id; `limit` edges at most, the oldest go first (G8)."""

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._held = 0
        self._columns: OrderedDict[int, Remembered] = OrderedDict()
        self._lock = Lock()

    def learn(self, graph: Graph, number: int) -> None:
        """Remember the columns of a node, which the document must tell."""
        rows = tuple(_edges(graph, graph.rows[number]))
        columns = zip(graph.plan.nodes[number].out, graph.columns(number), strict=True)
        with self._lock:
            for attribute, value in columns:
                made = Remembered(tuple(_edges(graph, value.edges)), rows)
                self._drop(attribute.id)
                self._columns[attribute.id] = made
                self._held += len(made.edges) + 1
            while self._held > self._limit and self._columns:
                self._drop(next(iter(self._columns)))

    def recall(self, number: int) -> Remembered | None:
        """A column by its expression id."""
        with self._lock:
            return self._columns.get(number)

    def _drop(self, number: int) -> None:
        old = self._columns.pop(number, None)
        if old is not None:
            self._held -= len(old.edges) + 1


def _edges(graph: Graph, edges: Edges) -> Iterable[Edge]:
    for kind, mask in edges.masks.items():
        for place in bits(mask):
            source = graph.sources.all[place]
            yield Edge(source.datasets, source.path, source.pointer, kind)
