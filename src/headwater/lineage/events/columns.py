"""Column lineage of a run's outputs: the graph of each plan once, and one facet an output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.lineage.columns import (
    ColumnLineage,
    ColumnMemory,
    ColumnSettings,
    Graph,
    Late,
    column_graph,
    column_lineage,
    column_lineage_facet,
    explicit_lineage_facet,
)
from headwater.lineage.datasets.node_lineage import guarded
from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.context import OpenLineageContext
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.make import PRODUCER
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.runs import ExtractionError, Run
from headwater.lineage.settings import LineageSettings

__all__ = ["Columns"]


class Columns:
    """Keeps what earlier queries knew of their columns, for those that begin where they ended."""

    def __init__(self, settings: LineageSettings, context: OpenLineageContext) -> None:
        self._is_wanted = "columnLineage" not in settings.disabled_facets or settings.explicit_lineage
        self._is_explicit = settings.explicit_lineage
        self._context = context
        self._memory = ColumnMemory()
        self._settings = ColumnSettings(
            dataset_level=settings.column_lineage_datasets,
            descriptions=settings.column_lineage_descriptions,
            max_columns=settings.column_lineage_max_columns,
            max_edges=settings.column_lineage_max_edges,
        )

    def add(
        self,
        run: Run,
        inputs: Sequence[InputDatasetBuilder],
        outputs: Sequence[OutputDatasetBuilder],
        objects: Iterable[object],
        until: float,
        errors: list[ExtractionError],
        declared: Iterable[tuple[int, InputDatasetBuilder]] = (),
    ) -> None:
        """Put `columnLineage` on the outputs; what is late or fails is told in `errors`.

        Also called without outputs: the memory learns from every query. `declared` are inputs by execution
        that only the program knows of, which it may say when the run has begun.
        """
        if not self._is_wanted:
            return
        graphs: dict[Any, Graph] = run.cache.column_graphs
        declared = list(declared)
        facets: dict[Any, dict[str, Any]] = run.cache.column_facets
        for query in objects:
            if not isinstance(query, QueryExecution) or query.plan is None:
                continue
            try:
                own = {
                    node: frozenset(each.ids)
                    for number, each in declared
                    if number == query.id
                    for node in each.nodes
                }
                self._add(query.id, query.plan, inputs, outputs, graphs, facets, until, own)
            except Late:
                errors.append(ExtractionError("columnLineage", "not found within the deadline"))
            except Exception as error:
                errors.append(ExtractionError("columnLineage", f"{type(error).__name__}: {error}"))

    def _add(
        self,
        number: int,
        plan: Plan,
        inputs: Sequence[InputDatasetBuilder],
        outputs: Sequence[OutputDatasetBuilder],
        graphs: dict[Any, Graph],
        facets: dict[Any, dict[str, Any]],
        until: float,
        declared: dict[int, frozenset[int]],
    ) -> None:
        if plan.top is None:
            return
        datasets: dict[int, list[DatasetId]] = {}
        for each in inputs:
            for execution, node in each.places:
                if execution == number:
                    datasets.setdefault(node, []).append(each.id)

        def read(node: Node) -> Sequence[DatasetId]:
            return datasets.get(node.id, ())

        found_with = (number, frozenset(declared))
        if found_with not in graphs:
            asking = self._context.asking
            if asking is not None:
                asking.begin(number, plan)
            graphs[found_with] = column_graph(
                plan,
                read,
                settings=self._settings,
                tells=guarded(asking) if asking is not None else None,
                memory=self._memory,
                deadline=until,
                declared=declared,
            )
        for output in outputs:
            for node in (node for execution, node in sorted(output.places) if execution == number):
                if "columnLineage" in output.facets:
                    break  # the outer command knows the query as it was written
                key = (*found_with, node)
                if key not in facets:
                    found = column_lineage(
                        plan, read, plan.nodes[node], self._settings, graph=graphs[found_with], deadline=until
                    )
                    facets[key] = self._facets(found)
                for name, facet in facets[key].items():
                    output.facets.setdefault(name, _without(facet, output.hidden))

    def _facets(self, found: ColumnLineage) -> dict[str, Any]:
        if not found:
            return {}
        made = {"columnLineage": column_lineage_facet(found, PRODUCER)}
        if self._is_explicit:
            made["lineage"] = explicit_lineage_facet(found, PRODUCER)
        return made


def _without(facet: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    if not hidden:
        return facet
    return {**facet, "fields": {name: one for name, one in facet["fields"].items() if name not in hidden}}
