"""Adds column lineage to the outputs of a run: one graph for each plan, one facet for each output.

The facets are `columnLineage` of the specification and, if it is enabled, the newer explicit `lineage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.lineage.columns.column_graph import ColumnGraph, DeadlinePassed
from headwater.lineage.columns.edge_sets import Transformation
from headwater.lineage.columns.written_columns import (
    ColumnLineage,
    ColumnSettings,
    InputColumn,
    add_generated_columns,
    column_lineage,
)
from headwater.lineage.datasets.jdbc_query import JdbcQuery
from headwater.lineage.datasets.plan_visits import PlanVisits
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
        declared: Sequence[tuple[int, InputDatasetBuilder]] = (),
    ) -> None:
        """Set `columnLineage` on the outputs; failures are added to `errors`.

        Also called without outputs: the history records the columns of every query. `declared` are inputs
        that the program declares, with the id of their SQL execution; it may do so after the run's start.
        """
        if not self._is_wanted:
            return
        for query in objects:
            if not isinstance(query, QueryExecution) or query.plan is None or query.plan.top is None:
                continue
            datasets: dict[int, list[DatasetId]] = {}
            queries: dict[int, list[tuple[DatasetId, str, JdbcQuery]]] = {}
            for each in inputs:
                for execution, node in each.plan_nodes:
                    if execution == query.id:
                        datasets.setdefault(node, []).append(each.id)
                        if (execution, node) in each.queries:
                            queries.setdefault(node, []).append((each.id, *each.queries[execution, node]))
            leaves = {
                node: frozenset(each.expr_ids)
                for number, each in declared
                if number == query.id
                for node in each.nodes
            }
            try:
                self._add(run, query.id, query.plan, datasets, queries, leaves, outputs, until)
            except DeadlinePassed:
                errors.append(ExtractionError("columnLineage", "not found within the deadline"))
            except Exception as error:
                errors.append(ExtractionError("columnLineage", f"{type(error).__name__}: {error}"))

    def _add(
        self,
        run: Run,
        number: int,
        plan: Plan,
        datasets: dict[int, list[DatasetId]],
        queries: dict[int, list[tuple[DatasetId, str, JdbcQuery]]],
        declared: dict[int, frozenset[int]],
        outputs: Sequence[OutputDatasetBuilder],
        until: float,
    ) -> None:
        def read(node: Node) -> Sequence[DatasetId]:
            return datasets.get(node.id, ())

        graphs, facets = run.cache.column_graphs, run.cache.column_facets
        graph_key = (number, frozenset(declared))
        if graph_key not in graphs:
            self._visits.begin(number, plan)
            graphs[graph_key] = ColumnGraph(
                plan,
                read,
                node_columns=self._visits.columns,
                history=self._history,
                deadline=until,
                texts=self._settings.descriptions,
                declared=declared,
                queries=queries,
            ).run()
        for output in outputs:
            for node in (node for execution, node in sorted(output.plan_nodes) if execution == number):
                if "columnLineage" in output.facets:
                    break  # the outer command has the query as it was written
                key = (*graph_key, node)
                if key not in facets:
                    found = column_lineage(
                        plan, read, plan.nodes[node], self._settings, graph=graphs[graph_key], deadline=until
                    )
                    add_generated_columns(found, _generated(plan.nodes[node]))
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


def _generated(node: Node) -> dict[str, str]:
    """The columns that the written Delta table computes itself, by their expressions."""
    document = (node.fields or {}).get("table")
    if isinstance(document, dict) and document.get("@") == "node":
        document = (document.get("f") or {}).get("table")
    found = document.get("generated") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _without(facet: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    if not columns:
        return facet
    return {**facet, "fields": {name: one for name, one in facet["fields"].items() if name not in columns}}


# --- the facets

_SPEC = "https://openlineage.io/spec/facets"
COLUMN_LINEAGE_URL = f"{_SPEC}/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
LINEAGE_URL = f"{_SPEC}/1-0-0/LineageFacet.json#/$defs/LineageDatasetFacet"


def column_lineage_facet(lineage: ColumnLineage, producer: str) -> dict[str, Any]:
    """The facet of the specification; gaps are in `unknown`, omissions in `cut` (G11)."""
    names = _Names(explicit=False)
    facet: dict[str, Any] = {
        "_producer": producer,
        "_schemaURL": COLUMN_LINEAGE_URL,
        "fields": {
            name: {"inputFields": names.inputs(inputs, lineage.texts.get(name, ""))}
            for name, inputs in lineage.fields.items()
        },
    }
    if lineage.dataset:
        facet["dataset"] = names.inputs(lineage.dataset, "")
    return _remarks(facet, lineage)


def explicit_lineage_facet(lineage: ColumnLineage, producer: str) -> dict[str, Any]:
    """The same edges as the facet `lineage` of a dataset, which lists sources as entities."""
    names = _Names(explicit=True)
    facet: dict[str, Any] = {
        "_producer": producer,
        "_schemaURL": LINEAGE_URL,
        "inputs": names.inputs(lineage.dataset, ""),
        "fields": {
            name: {"inputs": names.inputs(inputs, lineage.texts.get(name, ""))}
            for name, inputs in lineage.fields.items()
        },
    }
    return _remarks(facet, lineage)


def _remarks(facet: dict[str, Any], lineage: ColumnLineage) -> dict[str, Any]:
    if lineage.gaps:
        facet["unknown"] = [{"what": gap.what, "reason": gap.reason} for gap in lineage.gaps[:100]]
    if lineage.cut:
        facet["cut"] = lineage.cut
    return facet


class _Names:
    """Inputs as JSON objects; equal ones are one object, since wide tables have millions of equal edges."""

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        self._inputs: dict[tuple[InputColumn, str], dict[str, Any]] = {}
        self._lists: dict[int, list[dict[str, Any]]] = {}

    def inputs(self, inputs: list[InputColumn], text: str) -> list[dict[str, Any]]:
        if text:
            return [self._input(one, text) for one in inputs]
        known = self._lists.get(id(inputs))
        if known is None:
            known = self._lists[id(inputs)] = [self._input(one, "") for one in inputs]
        return known

    def _input(self, one: InputColumn, text: str) -> dict[str, Any]:
        key = (one, text)
        made = self._inputs.get(key)
        if made is None:
            made = {"namespace": one.dataset.namespace, "name": one.dataset.name}
            if self._explicit:
                made["type"] = "DATASET"
            made["field"] = one.field
            made["transformations"] = [_transformation(kind, text) for kind in one.transformations]
            if one.pointer:
                made["jsonPointer"] = one.pointer
            self._inputs[key] = made
        return made


def _transformation(kind: Transformation, text: str) -> dict[str, Any]:
    description = kind.note or (text if kind.subtype != "IDENTITY" else "")
    return {
        "type": "DIRECT" if kind.direct else "INDIRECT",
        "subtype": kind.subtype,
        **({"description": description} if description else {}),
        "masking": kind.masking,
    }
