"""Facets of jobs: type, SQL, owners, tags, documentation, source code."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwater.lineage.extend.builders import AbstractJobFacetBuilder, Consumer
from headwater.lineage.facets.make import standard
from headwater.lineage.facets.run import tags
from headwater.lineage.runs import Run, RunKind

logger = logging.getLogger(__name__)

LONGEST_SQL = 100_000
_TYPES = {
    RunKind.APPLICATION: ("NONE", "APPLICATION"),
    RunKind.SQL: ("BATCH", "SQL_JOB"),
    RunKind.RDD_JOB: ("BATCH", "RDD_JOB"),
    RunKind.STREAM: ("STREAMING", "STREAMING_QUERY"),
    RunKind.BATCH: ("STREAMING", "MICRO_BATCH"),
}


class JobType(AbstractJobFacetBuilder[Run]):
    """`jobType`."""

    def accept(self, event: Run, consumer: Consumer) -> None:
        processing, job = _TYPES[event.kind]
        facet = standard(
            "job_type_job.JobTypeJobFacet", processingType=processing, integration="SPARK", jobType=job
        )
        consumer("jobType", facet)


class Sql(AbstractJobFacetBuilder[Run]):
    """`sql`: the text that was given to `spark.sql`."""

    def accept(self, event: Run, consumer: Consumer) -> None:
        text = next((each.sql for each in event.executions if each.sql), None)
        if text and event.kind is not RunKind.STREAM:
            consumer("sql", standard("sql_job.SQLJobFacet", query=text[:LONGEST_SQL], dialect="spark"))


class Ownership(AbstractJobFacetBuilder[Run]):
    """`ownership` from the settings `job.owners.<type>`."""

    def __init__(self, owners: Mapping[str, Any]) -> None:
        self._owners = [{"name": str(name), "type": str(kind)} for kind, name in owners.items()]

    def accept(self, event: Run, consumer: Consumer) -> None:
        if self._owners:
            consumer("ownership", standard("ownership_job.OwnershipJobFacet", owners=self._owners))


class JobTags(AbstractJobFacetBuilder[Run]):
    """`tags` of the job, from the settings."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._tags = tags(texts)

    def accept(self, event: Run, consumer: Consumer) -> None:
        if self._tags:
            consumer("tags", standard("tags_job.TagsJobFacet", tags=self._tags))


class Documentation(AbstractJobFacetBuilder[Run]):
    """`documentation`: the setting `job.documentation`, or the description that a query's user gave it."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def accept(self, event: Run, consumer: Consumer) -> None:
        text = self._text
        if event.kind is RunKind.SQL and event.execution is not None and event.execution.start is not None:
            text = _by_user(event.execution.start.description) or text
        elif event.kind is RunKind.RDD_JOB and event.jobs:
            text = event.jobs[0].start.properties.get("spark.job.description") or text
        if text:
            consumer("documentation", standard("documentation_job.DocumentationJobFacet", description=text))


def _by_user(description: str) -> str:
    """The user's description; Spark's default is the call site: `parquet at Some.java:0`."""
    return "" if re.search(r" at \S+:\d+$", description) else description


class SourceCodeLocation(AbstractJobFacetBuilder[Run]):
    """`sourceCodeLocation`: the Git repository of the script that runs."""

    def __init__(self, facet: Mapping[str, Any] | None) -> None:
        self._facet = dict(facet) if facet is not None else None

    def accept(self, event: Run, consumer: Consumer) -> None:
        if self._facet is not None:
            consumer("sourceCodeLocation", self._facet)


def source_code_location(script: str | None = None) -> dict[str, Any] | None:
    """The facet of a script, by default the running one; None outside a repository with a remote."""
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
        relative = str(path.relative_to(folder))
        return standard(
            "source_code_location_job.SourceCodeLocationJobFacet",
            type="git",
            url=url,
            repoUrl=url,
            path=relative,
            version=git.get_git_version(inside),
            branch=git.get_git_branch(inside),
        )
    except Exception as error:  # an older client, a repository in an odd state
        logger.debug("No sourceCodeLocation: %s", error)
        return None
