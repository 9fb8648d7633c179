"""Adds column lineage to the outputs of a run: one graph for each plan, one facet for each output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.lineage.columns.facet import column_lineage_facet, explicit_lineage_facet
from headwater.lineage.columns.graph import ColumnGraph, DeadlinePassed
from headwater.lineage.columns.lineage import ColumnLineage, ColumnSettings, column_graph, column_lineage
from headwater.lineage.datasets.query import PlanVisits
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.make import PRODUCER
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.runs import ExtractionError, Run
from headwater.lineage.settings import LineageSettings


class OutputColumns:
    """Column lineage of all runs of an application."""

    def __init__(self, settings: LineageSettings, visits: PlanVisits, history: QueryHistory) -> None:
        self._is_wanted = "columnLineage" not in settings.disabled_facets or settings.explicit_lineage
        self._is_explicit = settings.explicit_lineage
        self._visits = visits
        self._history = history
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
        """Set `columnLineage` on the outputs; failures are added to `errors`.

        Also called without outputs: the history records the columns of every query. `declared` are inputs
        that the program declares, with the id of their SQL execution; it may do so after the run's start.
        """
        if not self._is_wanted:
            return
        graphs: dict[Any, ColumnGraph] = run.cache.column_graphs
        facets: dict[Any, dict[str, Any]] = run.cache.column_facets
        declared = list(declared)
        for query in objects:
            if not isinstance(query, QueryExecution) or query.plan is None:
                continue
            try:
                leaves = {
                    node: frozenset(each.expr_ids)
                    for number, each in declared
                    if number == query.id
                    for node in each.nodes
                }
                self._add(query.id, query.plan, inputs, outputs, graphs, facets, until, leaves)
            except DeadlinePassed:
                errors.append(ExtractionError("columnLineage", "not found within the deadline"))
            except Exception as error:
                errors.append(ExtractionError("columnLineage", f"{type(error).__name__}: {error}"))

    def _add(
        self,
        number: int,
        plan: Plan,
        inputs: Sequence[InputDatasetBuilder],
        outputs: Sequence[OutputDatasetBuilder],
        graphs: dict[Any, ColumnGraph],
        facets: dict[Any, dict[str, Any]],
        until: float,
        declared: dict[int, frozenset[int]],
    ) -> None:
        if plan.top is None:
            return
        datasets: dict[int, list[DatasetId]] = {}
        for each in inputs:
            for execution, node in each.plan_nodes:
                if execution == number:
                    datasets.setdefault(node, []).append(each.id)

        def read(node: Node) -> Sequence[DatasetId]:
            return datasets.get(node.id, ())

        graph_key = (number, frozenset(declared))
        if graph_key not in graphs:
            self._visits.begin(number, plan)
            graphs[graph_key] = column_graph(
                plan,
                read,
                settings=self._settings,
                node_columns=self._visits.columns,
                history=self._history,
                deadline=until,
                declared=declared,
            )
        for output in outputs:
            for node in (node for execution, node in sorted(output.plan_nodes) if execution == number):
                if "columnLineage" in output.facets:
                    break  # the outer command has the query as it was written
                key = (*graph_key, node)
                if key not in facets:
                    found = column_lineage(
                        plan, read, plan.nodes[node], self._settings, graph=graphs[graph_key], deadline=until
                    )
                    facets[key] = self._facets(found)
                for name, facet in facets[key].items():
                    output.facets.setdefault(name, _without(facet, output.columns_not_written))

    def _facets(self, found: ColumnLineage) -> dict[str, Any]:
        if not found:
            return {}
        made = {"columnLineage": column_lineage_facet(found, PRODUCER)}
        if self._is_explicit:
            made["lineage"] = explicit_lineage_facet(found, PRODUCER)
        return made


def _without(facet: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    if not columns:
        return facet
    return {**facet, "fields": {name: one for name, one in facet["fields"].items() if name not in columns}}
