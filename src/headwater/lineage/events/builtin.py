"""Headwater's own visitors and builders; they enter through the door that extensions take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.lineage.datasets.ddl import Changes
from headwater.lineage.datasets.inputs import LoadedFiles, Memory, RddFrames, Relations
from headwater.lineage.datasets.rdds import JobOutputs, RddInputs
from headwater.lineage.datasets.relations import Sources
from headwater.lineage.datasets.writes import Writes
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    CustomFacetBuilder,
    InputDatasetBuilder,
    OpenLineageEventListenerFactory,
    OutputDatasetBuilder,
    QueryPlanVisitor,
)
from headwater.lineage.extend.context import OpenLineageContext
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets import job, run
from headwater.lineage.jvm.plan import Node, Plan

__all__ = ["BuiltinFactory"]

# Whose children are the table that changes, or rows that nobody takes: nothing is read there.
_READS_NOTHING = {"DeleteFromTable", "DescribeRelation", "RefreshTable", "AnalyzeTable", "AnalyzeColumn"}


class PlanInputs(AbstractInputDatasetBuilder[QueryExecution]):
    """Inputs of a query: every visitor over every node of its plan, subqueries included."""

    def __init__(self, context: OpenLineageContext, memory: Memory) -> None:
        self._context = context
        self._memory = memory

    def apply(self, event: QueryExecution) -> list[InputDatasetBuilder]:
        plan = event.plan
        if plan is None or _is_name_only(plan):
            return []
        self._context.plan = plan
        if self._context.asking is not None:
            self._context.asking.begin(event.id, plan)
        found = self._context.visit(self._context.input_dataset_query_plan_visitors, _read_nodes(plan))
        top = plan.top
        for node in (top, *plan.children(top)) if top is not None else ():
            self._memory.keep((column.id for column in node.out), found)
        return found


class PlanOutputs(AbstractOutputDatasetBuilder[QueryExecution]):
    """Outputs of a query: likewise."""

    def __init__(self, context: OpenLineageContext) -> None:
        self._context = context

    def apply(self, event: QueryExecution) -> list[OutputDatasetBuilder]:
        if event.plan is None:
            return []
        self._context.plan = event.plan
        if self._context.asking is not None:
            self._context.asking.begin(event.id, event.plan)
        return self._context.visit(self._context.output_dataset_query_plan_visitors, event.plan.nodes)


def _read_nodes(plan: Plan) -> list[Node]:
    skipped: set[int] = set()
    for node in plan.nodes:
        if node.simple in _READS_NOTHING:
            skipped |= plan.below(node.kids[0]) if node.kids else set()
    return [node for node in plan.nodes if node.id not in skipped]


def _is_name_only(plan: Plan) -> bool:
    """A temporary view is a name for a query: nothing is read until somebody uses it."""
    top = plan.top
    if top is None or top.simple != "CreateViewCommand":
        return False
    kind = ((top.fields or {}).get("viewType") or {}).get("cls", "")
    return not str(kind).endswith("PersistedView$")


class BuiltinFactory(OpenLineageEventListenerFactory):
    """What Headwater knows by itself. `details` are those of the application that never change."""

    def __init__(
        self, version: str, details: Mapping[str, Any], source_code: Mapping[str, Any] | None
    ) -> None:
        self._version = version
        self._details = details
        self._source_code = source_code
        self._memory = Memory()

    def set_open_lineage_context(self, context: OpenLineageContext) -> None:
        self._context = context
        self._sources = Sources(context.surroundings)

    def create_input_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[InputDatasetBuilder]]:
        return [Relations(self._sources), RddFrames(self._sources, self._memory), LoadedFiles()]

    def create_output_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[OutputDatasetBuilder]]:
        return [Writes(self._sources, self._context), Changes(self._sources, self._context)]

    def create_input_dataset_builder(self) -> list[AbstractInputDatasetBuilder[Any]]:
        return [PlanInputs(self._context, self._memory), RddInputs()]

    def create_output_dataset_builder(self) -> list[AbstractOutputDatasetBuilder[Any]]:
        return [PlanOutputs(self._context), JobOutputs()]

    def create_run_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings = self._context.settings
        return [
            run.ProcessingEngine(self._version),
            run.SparkProperties(settings, self._context.surroundings),
            run.ApplicationDetails(self._details),
            run.JobDetails(),
            run.StreamDetails(),
            run.EnvironmentVariables(settings.environment_variables),
            run.RunTags(settings.run_tags),
            run.ErrorMessage(),
        ]

    def create_job_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings = self._context.settings
        return [
            job.JobType(),
            job.Sql(),
            job.Ownership(settings.job_owners),
            job.JobTags(settings.job_tags),
            job.Documentation(settings.properties.get("job.documentation", "")),
            job.SourceCodeLocation(self._source_code),
        ]
