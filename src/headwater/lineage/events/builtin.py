"""Headwater's own visitors and builders, loaded like those of an extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from headwater.lineage.datasets.ddl import DdlVisitor
from headwater.lineage.datasets.plan_visits import CurrentQuery, PlanVisits, QueryInputs, QueryOutputs
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.datasets.reads import (
    JobOutputs,
    LoadDataVisitor,
    RddFrameVisitor,
    RddInputs,
    RelationVisitor,
    Sources,
)
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
from headwater.lineage.facets import run as facets
from headwater.lineage.facets.run import FacetOfRun
from headwater.lineage.settings import LineageSettings


class Application(NamedTuple):
    """Properties that do not change during an application."""

    name: str = "unknown"
    spark_version: str = "unknown"
    details: Mapping[str, Any] = {}
    source_code: dict[str, Any] | None = None


@dataclass(frozen=True)
class BuiltinFactory(OpenLineageEventListenerFactory):
    """Creates the built-in builders."""

    settings: LineageSettings
    application: Application
    sources: Sources
    visits: PlanVisits
    query: CurrentQuery
    history: QueryHistory

    def create_input_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[InputDatasetBuilder]]:
        return [
            RelationVisitor(self.sources),
            RddFrameVisitor(self.sources, self.history),
            LoadDataVisitor(),
        ]

    def create_output_dataset_query_plan_visitors(self) -> list[QueryPlanVisitor[OutputDatasetBuilder]]:
        return [Writes(self.sources, self.query), DdlVisitor(self.sources, self.query)]

    def create_input_dataset_builder(self) -> list[AbstractInputDatasetBuilder[Any]]:
        return [QueryInputs(self.visits, self.history), RddInputs()]

    def create_output_dataset_builder(self) -> list[AbstractOutputDatasetBuilder[Any]]:
        return [QueryOutputs(self.visits), JobOutputs()]

    def create_run_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings, application = self.settings, self.application
        engine = facets.processing_engine(application.spark_version)
        variables = facets.environment_variables(settings.environment_variables)
        names = settings.environment_variables if settings.is_like_upstream else ()
        properties = facets.environment_properties(names)
        tags = facets.tags("tags_run.TagsRunFacet", settings.run_tags)
        return [
            FacetOfRun("processing_engine", lambda run: engine),
            FacetOfRun(
                "spark_properties",
                partial(facets.spark_properties, settings.captured_properties, self.sources.catalogs.conf),
            ),
            FacetOfRun("spark_applicationDetails", partial(facets.application_details, application.details)),
            FacetOfRun("spark_jobDetails", facets.job_details),
            FacetOfRun("spark_streamDetails", facets.stream_details),
            FacetOfRun("environmentVariables", lambda run: variables),
            FacetOfRun("environment-properties", lambda run: properties),
            FacetOfRun("tags", lambda run: tags),
            FacetOfRun("errorMessage", facets.error_message),
        ]

    def create_job_facet_builders(self) -> list[CustomFacetBuilder[Any, Any]]:
        settings = self.settings
        owners = facets.ownership(settings.job_owners)
        tags = facets.tags("tags_job.TagsJobFacet", settings.job_tags)
        text = settings.properties.get("job.documentation", "")
        return [
            FacetOfRun("jobType", facets.job_type),
            FacetOfRun("sql", facets.sql),
            FacetOfRun("ownership", lambda run: owners),
            FacetOfRun("tags", lambda run: tags),
            FacetOfRun("documentation", partial(facets.documentation, text)),
            FacetOfRun("sourceCodeLocation", lambda run: self.application.source_code),
        ]
