"""Headwater's own visitors and builders, loaded like those of an extension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.lineage.datasets.catalogs import Catalogs
from headwater.lineage.datasets.ddl import DdlVisitor
from headwater.lineage.datasets.query import CurrentQuery, PlanVisits, QueryInputs, QueryOutputs
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.datasets.rdds import JobOutputs, RddInputs
from headwater.lineage.datasets.relations import LoadDataVisitor, RddFrameVisitor, RelationVisitor, Sources
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
from headwater.lineage.facets import job, run
from headwater.lineage.settings import LineageSettings


class Application(NamedTuple):
    """What stays the same during an application."""

    name: str = "unknown"
    spark_version: str = "unknown"
    details: Mapping[str, Any] = {}
    source_code: Mapping[str, Any] | None = None


class BuiltinFactory(OpenLineageEventListenerFactory):
    """Creates the built-in builders."""

    def __init__(
        self,
        settings: LineageSettings,
        application: Application,
        catalogs: Catalogs,
        visits: PlanVisits,
        query: CurrentQuery,
        history: QueryHistory,
    ) -> None:
        self._settings = settings
        self._application = application
        self._catalogs = catalogs
        self._sources = Sources(catalogs)
        self._visits = visits
        self._query = query
        self._history = history

    def create_input_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[InputDatasetBuilder]]:
        return [
            RelationVisitor(self._sources),
            RddFrameVisitor(self._sources, self._history),
            LoadDataVisitor(),
        ]

    def create_output_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[OutputDatasetBuilder]]:
        return [Writes(self._sources, self._query), DdlVisitor(self._sources, self._query)]

    def create_input_dataset_builder(self) -> list[AbstractInputDatasetBuilder[Any]]:
        return [QueryInputs(self._visits, self._history), RddInputs()]

    def create_output_dataset_builder(self) -> list[AbstractOutputDatasetBuilder[Any]]:
        return [QueryOutputs(self._visits), JobOutputs()]

    def create_run_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings = self._settings
        return [
            run.ProcessingEngine(self._application.spark_version),
            run.SparkProperties(settings.captured_properties, self._catalogs.conf),
            run.ApplicationDetails(self._application.details),
            run.JobDetails(),
            run.StreamDetails(),
            run.EnvironmentVariables(settings.environment_variables),
            run.RunTags(settings.run_tags),
            run.ErrorMessage(),
        ]

    def create_job_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings = self._settings
        return [
            job.JobType(),
            job.Sql(),
            job.Ownership(settings.job_owners),
            job.JobTags(settings.job_tags),
            job.Documentation(settings.properties.get("job.documentation", "")),
            job.SourceCodeLocation(self._application.source_code),
        ]
