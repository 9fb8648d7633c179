"""Facets of runs and of their jobs: a function makes each of them from a run, or returns None."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from headwater import __version__
from headwater.lineage.extend.builders import Consumer, CustomFacetBuilder
from headwater.lineage.facets.make import custom, standard
from headwater.lineage.runs import Run, RunKind
from headwater.lineage.settings import LineageSettings, ParentRun

logger = logging.getLogger(__name__)

Facet = dict[str, Any]

LONGEST_STACK = 20_000
LONGEST_SQL = 100_000
_JOB_TYPES = {
    RunKind.APPLICATION: ("NONE", "APPLICATION"),
    RunKind.SQL: ("BATCH", "SQL_JOB"),
    RunKind.RDD_JOB: ("BATCH", "RDD_JOB"),
    RunKind.STREAM: ("STREAMING", "STREAMING_QUERY"),
    RunKind.BATCH: ("STREAMING", "MICRO_BATCH"),
}


class FacetOfRun(CustomFacetBuilder[Run, Facet]):
    """One facet of the run or of its job."""

    def __init__(self, key: str, make: Callable[[Run], Facet | None]) -> None:
        self._key = key
        self._make = make

    def accept(self, event: Run, consumer: Consumer) -> None:
        if facet := self._make(event):
            consumer(self._key, facet)


# --- of the run


def parent_facet(run: Run, settings: LineageSettings, name_of: Callable[[Run], str]) -> Facet | None:
    """`parent`; None for an application without a known parent."""
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


def _pair(run: ParentRun) -> Facet:
    return {"run": {"runId": run.run_id}, "job": {"namespace": run.namespace, "name": run.name}}


def processing_engine(version: str) -> Facet:
    """`processing_engine`: the versions of Spark and Headwater."""
    return standard(
        "processing_engine_run.ProcessingEngineRunFacet",
        version=version,
        name="spark",
        openlineageAdapterVersion=__version__,
    )


def spark_properties(names: Iterable[str], conf: Mapping[str, str], run: Run) -> Facet | None:
    """`spark_properties`: the settings listed in `capturedProperties` that are set."""
    known: Mapping[str, str] = {**conf, **run.properties}
    found = {name: str(known[name]) for name in names if name in known}
    return custom("run", properties=found) if found else None


def application_details(details: Mapping[str, Any], run: Run) -> Facet | None:
    """`spark_applicationDetails`: the application's id, name, user and addresses."""
    if run.ended is not None and run.kind is not RunKind.APPLICATION:
        return None  # backends merge the events of a run: START has it
    app = run.root.app
    known = {"applicationId": app.id, "appName": app.name, "userName": app.user} if app is not None else {}
    return custom("run", **{**known, **{name: value for name, value in details.items() if value}})


def job_details(run: Run) -> Facet | None:
    """`spark_jobDetails`: the first Spark job of the run, with its description."""
    if not run.jobs:
        return None
    properties = run.jobs[0].start.properties or run.properties
    return custom(
        "run",
        jobId=run.jobs[0].id,
        jobDescription=properties.get("spark.job.description"),
        jobGroup=properties.get("spark.jobGroup.id"),
        jobCallSite=properties.get("callSite.short"),
    )


def stream_details(run: Run) -> Facet | None:
    """`spark_streamDetails`: the streaming query and the number of the batch."""
    stream = run.stream
    if stream is None:
        return None
    return custom("run", queryId=stream.id, queryRunId=stream.run, queryName=stream.name, batchId=run.batch)


def environment_variables(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> Facet | None:
    """`environmentVariables`: the variables listed in the settings, and no others."""
    found = [{"name": name, "value": environ[name]} for name in names if name in environ]
    facet = "environment_variables_run.EnvironmentVariablesRunFacet"
    return standard(facet, environmentVariables=found) if found else None


def environment_properties(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> Facet | None:
    """`environment-properties`: the same variables in the facet of openlineage-spark."""
    found = {name: environ[name] for name in names if name in environ}
    return custom("run", **{"environment-properties": found}) if found else None


def error_message(run: Run) -> Facet | None:
    """`errorMessage` of a run that failed."""
    if run.failure is None or run.ended is None:
        return None
    stack = run.failure.stack
    return standard(
        "error_message_run.ErrorMessageRunFacet",
        message=run.failure.text,
        programmingLanguage="PYTHON" if run.kind is RunKind.APPLICATION else "JAVA",
        stackTrace=stack[:LONGEST_STACK] if stack else None,
    )


# --- of its job


def job_type(run: Run) -> Facet:
    """`jobType`."""
    processing, job = _JOB_TYPES[run.kind]
    return standard(
        "job_type_job.JobTypeJobFacet", processingType=processing, integration="SPARK", jobType=job
    )


def sql(run: Run) -> Facet | None:
    """`sql`: the text that was given to `spark.sql`."""
    text = next((each.sql for each in run.executions if each.sql), None)
    if not text or run.kind is RunKind.STREAM:
        return None
    return standard("sql_job.SQLJobFacet", query=text[:LONGEST_SQL], dialect="spark")


def ownership(owners: Mapping[str, Any]) -> Facet | None:
    """`ownership` from the settings `job.owners.<type>`."""
    named = [{"name": str(name), "type": str(kind)} for kind, name in owners.items()]
    return standard("ownership_job.OwnershipJobFacet", owners=named) if named else None


def documentation(text: str, run: Run) -> Facet | None:
    """`documentation`: the description that a query's user gave it, or the setting `job.documentation`."""
    if run.kind is RunKind.SQL and run.execution is not None and run.execution.start is not None:
        text = _by_user(run.execution.start.description) or text
    elif run.kind is RunKind.RDD_JOB and run.jobs:
        text = run.jobs[0].start.properties.get("spark.job.description") or text
    return standard("documentation_job.DocumentationJobFacet", description=text) if text else None


def _by_user(description: str) -> str:
    """The user's description; Spark's default is the call site: `parquet at Some.java:0`."""
    return "" if re.search(r" at \S+:\d+\Z", description) else description


def source_code_location(script: str | None = None) -> Facet | None:
    """`sourceCodeLocation` of a script, by default the running one, in a Git repository with a remote."""
    try:
        from openlineage.client import git

        path = Path(script or sys.argv[0] or ".").resolve()
        folder = next((each for each in path.parents if (each / ".git").exists()), None)
        if folder is None or not path.is_file():
            return None
        inside = git._find_git_dir(str(folder))
        url = git.get_git_repo_url(git_dir=inside) if inside is not None else None
        if inside is None or not url or "://" not in url:
            return None
        return standard(
            "source_code_location_job.SourceCodeLocationJobFacet",
            type="git",
            url=url,
            repoUrl=url,
            path=str(path.relative_to(folder)),
            version=git.get_git_version(inside),
            branch=git.get_git_branch(inside),
        )
    except Exception as error:  # an older client, a repository in an odd state
        logger.debug("No sourceCodeLocation: %s", error)
        return None


# --- of both


def tags(facet: str, texts: Iterable[str]) -> Facet | None:
    """`tags` from `key`, `key:value` or `key:value:source`, as in the settings of openlineage-spark."""
    found = []
    for text in texts:
        key, _, rest = text.strip().partition(":")
        value, _, source = rest.partition(":")
        if key:
            found.append({"key": key, "value": value or "true", "source": source or "CONFIG"})
    return standard(facet, tags=found) if found else None
