"""Inputs of a query: one visitor for every relation that Spark has of its own, and the walk over a plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from headwater.lineage.datasets.dataset import Found, place
from headwater.lineage.datasets.relations import RELATIONS, Sources
from headwater.lineage.extend.builders import InputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.jvm.plan import Node
from headwater.lineage.naming.names import DatasetId, path_id

__all__ = ["LoadedFiles", "Memory", "RddFrames", "Relations"]

_WITHOUT_DATA = {"ResolvedTable", "ResolvedIdentifier", "ResolvedPersistentView"}
_FRAMES = {"LogicalRDD", "ExternalRDD"}
# What Iceberg adds to its rows where a command changes them.
_ROW_COLUMNS = {"_file", "_pos", "_spec_id", "_partition", "_deleted"}


class Memory:
    """Which datasets the columns of earlier queries came from, by expression id.

    A checkpoint, `foreachBatch` and the like begin a new plan at an RDD, but keep the ids of the columns:
    what the first plan told of them is true of the second one. Bounded (G8): the oldest are forgotten.
    """

    def __init__(self, most: int = 50_000) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[tuple[DatasetId, dict[str, Any]], ...]] = OrderedDict()

    def keep(self, ids: Iterable[int], inputs: Iterable[InputDatasetBuilder]) -> None:
        """These columns came from these inputs."""
        told = tuple((each.id, dict(each.facets)) for each in inputs)
        if not told:
            return
        for number in ids:
            self._known[number] = told
            self._known.move_to_end(number)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def recall(self, ids: Iterable[int]) -> list[tuple[DatasetId, dict[str, Any]]]:
        """The inputs of columns, as far as they are known; each once."""
        found: dict[DatasetId, dict[str, Any]] = {}
        for number in ids:
            for id, kept in self._known.get(number, ()):
                found.setdefault(id, kept)
        return list(found.items())


class Relations(QueryPlanVisitor[InputDatasetBuilder]):
    """Files, tables, databases, topics: every leaf that Sources knows."""

    node_classes = frozenset(RELATIONS) - _WITHOUT_DATA - _FRAMES

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        return [_input(one, node) for one in self._sources.of(node.simple, node.fields or {}) or ()]


class RddFrames(QueryPlanVisitor[InputDatasetBuilder]):
    """A frame made of an RDD: what its columns came from in an earlier query, else what the RDDs read."""

    node_classes = _FRAMES

    def __init__(self, sources: Sources, memory: Memory) -> None:
        self._sources = sources
        self._memory = memory

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        ids = [column.id for column in node.out]
        if known := self._memory.recall(ids):
            return [InputDatasetBuilder(*id, kept, ids=ids, node=node.id) for id, kept in known]
        found = self._sources.of(node.simple, node.fields or {}) or ()
        return [InputDatasetBuilder(*one.id, one.facets, ids=ids, node=node.id) for one in found]


class LoadedFiles(QueryPlanVisitor[InputDatasetBuilder]):
    """LOAD DATA reads files without a relation."""

    node_classes = frozenset({"LoadDataCommand"})

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        path = (node.fields or {}).get("path")
        return [_input(place(path_id(str(path))), node)] if path else []


def _input(found: Found, node: Node) -> InputDatasetBuilder:
    told = dict(found.facets)
    if node.out:
        told["schema"] = facets.schema(column for column in node.out if column.name not in _ROW_COLUMNS)
    return InputDatasetBuilder(*found.id, told, ids=[column.id for column in node.out], node=node.id)
