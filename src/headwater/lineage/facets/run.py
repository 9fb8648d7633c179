"""Facets of runs: parent, Spark and its settings, application, job, environment, tags, errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater import __version__
from headwater.lineage.extend.builders import AbstractRunFacetBuilder, Consumer
from headwater.lineage.facets.make import custom, standard
from headwater.lineage.runs import Run, RunKind
from headwater.lineage.settings import LineageSettings, ParentRun


def parent_facet(run: Run, settings: LineageSettings, name_of: Callable[[Run], str]) -> dict[str, Any] | None:
    """The facet `parent`; None for an application without a known parent."""
    above = run.parent
    if above is None:
        parent = settings.parent
    else:
        parent = ParentRun(settings.namespace, name_of(above), str(above.id))
    if parent is None:
        return None
    root = settings.root_parent
    if root is None and above is not None:
        root = ParentRun(settings.namespace, name_of(run.root), str(run.root.id))
    return standard("parent_run.ParentRunFacet", **_pair(parent), root=_pair(root or parent))


def _pair(run: ParentRun) -> dict[str, Any]:
    return {"run": {"runId": run.run_id}, "job": {"namespace": run.namespace, "name": run.name}}


LONGEST_STACK = 20_000


class ProcessingEngine(AbstractRunFacetBuilder[Run]):
    """`processing_engine`: the versions of Spark and Headwater."""

    def __init__(self, version: str) -> None:
        self._facet = standard(
            "processing_engine_run.ProcessingEngineRunFacet",
            version=version,
            name="spark",
            openlineageAdapterVersion=__version__,
        )

    def accept(self, event: Run, consumer: Consumer) -> None:
        consumer("processing_engine", self._facet)


class SparkProperties(AbstractRunFacetBuilder[Run]):
    """`spark_properties`: the settings listed in `capturedProperties` that are set."""

    def __init__(self, names: Iterable[str], conf: Mapping[str, str]) -> None:
        self._names = names
        self._conf = conf

    def accept(self, event: Run, consumer: Consumer) -> None:
        known: Mapping[str, str] = {**self._conf, **event.properties}
        found = {name: str(known[name]) for name in self._names if name in known}
        if found:
            consumer("spark_properties", custom("run", properties=found))


class ApplicationDetails(AbstractRunFacetBuilder[Run]):
    """`spark_applicationDetails`: the application's id, name, user and addresses."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self._details = {name: value for name, value in details.items() if value}

    def accept(self, event: Run, consumer: Consumer) -> None:
        if event.ended is not None and event.kind is not RunKind.APPLICATION:
            return  # backends merge the events of a run: START has it
        app = event.root.app
        known = (
            {"applicationId": app.id, "appName": app.name, "userName": app.user} if app is not None else {}
        )
        consumer("spark_applicationDetails", custom("run", **{**known, **self._details}))


class JobDetails(AbstractRunFacetBuilder[Run]):
    """`spark_jobDetails`: the first Spark job of the run, with its description."""

    def accept(self, event: Run, consumer: Consumer) -> None:
        if not event.jobs:
            return
        properties = event.jobs[0].start.properties or event.properties
        consumer(
            "spark_jobDetails",
            custom(
                "run",
                jobId=event.jobs[0].id,
                jobDescription=properties.get("spark.job.description"),
                jobGroup=properties.get("spark.jobGroup.id"),
                jobCallSite=properties.get("callSite.short"),
            ),
        )


class StreamDetails(AbstractRunFacetBuilder[Run]):
    """`spark_streamDetails`: the streaming query and the number of the batch."""

    def accept(self, event: Run, consumer: Consumer) -> None:
        if event.stream is None:
            return
        consumer(
            "spark_streamDetails",
            custom(
                "run",
                queryId=event.stream.id,
                queryRunId=event.stream.run,
                queryName=event.stream.name,
                batchId=event.batch,
            ),
        )


class EnvironmentVariables(AbstractRunFacetBuilder[Run]):
    """`environmentVariables`: the variables listed in the settings, and no others."""

    def __init__(self, names: Iterable[str], environ: Mapping[str, str] = os.environ) -> None:
        found = [{"name": name, "value": environ[name]} for name in names if name in environ]
        self._facet = standard(
            "environment_variables_run.EnvironmentVariablesRunFacet", environmentVariables=found
        )

    def accept(self, event: Run, consumer: Consumer) -> None:
        if self._facet["environmentVariables"]:
            consumer("environmentVariables", self._facet)


class RunTags(AbstractRunFacetBuilder[Run]):
    """`tags` of the run, from the settings."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._tags = tags(texts)

    def accept(self, event: Run, consumer: Consumer) -> None:
        if self._tags:
            consumer("tags", standard("tags_run.TagsRunFacet", tags=self._tags))


class ErrorMessage(AbstractRunFacetBuilder[Run]):
    """`errorMessage` of a run that failed."""

    def accept(self, event: Run, consumer: Consumer) -> None:
        if event.failure is None or event.ended is None:
            return
        is_python = event.kind is RunKind.APPLICATION
        stack = event.failure.stack
        consumer(
            "errorMessage",
            standard(
                "error_message_run.ErrorMessageRunFacet",
                message=event.failure.text,
                programmingLanguage="PYTHON" if is_python else "JAVA",
                stackTrace=stack[:LONGEST_STACK] if stack else None,
            ),
        )


def tags(texts: Iterable[str]) -> list[dict[str, str]]:
    """Tags of the form `key`, `key:value` or `key:value:source`, as in the settings of openlineage-spark."""
    found = []
    for text in texts:
        key, _, rest = text.strip().partition(":")
        value, _, source = rest.partition(":")
        if key:
            found.append({"key": key, "value": value or "true", "source": source or "CONFIG"})
    return found
