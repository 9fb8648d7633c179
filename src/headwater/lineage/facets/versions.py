"""Versions of Iceberg and Delta tables: an input has the version read, an output the version written.

The plan has the version before a write. What a run has written is known at its end, from the reports of the
table format (jvm/java/LakeVersions.java); a version that may be another writer's is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.lineage.extend.builders import DatasetBuilder, InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.make import custom
from headwater.lineage.naming.names import path_id
from headwater.lineage.runs import Run

Report = Mapping[str, Any]

# Parts of Iceberg's summaries whose names differ from those in its reports.
_RENAMED = {
    "deletedDataFiles": "removedDataFiles",
    "deletedRecords": "removedRecords",
    "addedFilesSize": "addedFilesSizeInBytes",
    "removedFilesSize": "removedFilesSizeInBytes",
    "totalFilesSize": "totalFilesSizeInBytes",
}
_SCAN_METRICS = (
    "totalPlanningDuration",
    "resultDataFiles",
    "resultDeleteFiles",
    "totalDataManifests",
    "totalDeleteManifests",
    "scannedDataManifests",
    "skippedDataManifests",
    "totalFileSize",
    "totalDataFileSize",
    "totalDeleteFileSize",
    "skippedDataFiles",
    "skippedDeleteFiles",
    "scannedDeleteManifests",
    "skippedDeleteManifests",
    "indexedDeleteFiles",
    "equalityDeleteFiles",
    "positionalDeleteFiles",
)


def set_versions_read(inputs: Sequence[InputDatasetBuilder], objects: Iterable[object]) -> None:
    """Set the snapshots that Iceberg has scanned, and its reports; an input with several keeps the plan's."""
    queries = [each for each in objects if isinstance(each, QueryExecution)]
    for each in inputs:
        scans = [one for one in _reports(queries, "scan") if _is_of(one, each)]
        if len({one["version"] for one in scans}) != 1:
            continue
        each.facets["version"] = facets.version(str(scans[-1]["version"]))
        metrics: dict[str, int] = {}
        for node in (node for query in queries for node in query.executed if each.expr_ids & set(node.ids)):
            for name in _SCAN_METRICS:
                if name in node.metrics:
                    metrics[name] = metrics.get(name, 0) + node.metrics[name]
        report = custom(
            "input",
            snapshotId=scans[-1]["version"],
            filterDescription=str(scans[-1].get("filter", "")),
            scanMetrics=metrics,
        )
        each.role_facets.setdefault("icebergScanReport", report)


def set_versions_written(
    outputs: Sequence[OutputDatasetBuilder], objects: Iterable[object], run: Run
) -> None:
    """Replace the versions before the write by those that it has made; without a report there is none."""
    queries = [each for each in objects if isinstance(each, QueryExecution)]
    for each in outputs:
        if not _is_of_plan(each):
            continue  # an extension knows it
        each.facets.pop("version", None)
        commits = [one for one in _reports(queries, "commit") if _is_of(one, each)]
        if commits:
            last = commits[-1]
            each.facets["version"] = facets.version(str(last["version"]))
            report = custom(
                "output",
                snapshotId=last["version"],
                sequenceNumber=last.get("sequence"),
                operation=last.get("operation"),
                commitMetrics=_numbers(last.get("summary") or {}),
            )
            each.role_facets.setdefault("icebergCommitReport", report)
            continue
        found = [one for one in _reports(queries, "delta") if path_id(str(one["path"])) == each.id]
        # each execution of the run has a report; the latest is the one after the commit
        logs = sorted(
            (one for one in _reports(queries, "delta-log") if path_id(str(one["path"])) == each.id),
            key=lambda one: int(one.get("time") or 0),
        )
        if found and _is_own(found[-1], run):
            each.facets["version"] = facets.version(str(found[-1]["version"]))
        elif logs and _is_within(logs[-1], run):
            each.facets["version"] = facets.version(str(logs[-1]["version"]))


def _reports(queries: Sequence[QueryExecution], kind: str) -> Iterator[Report]:
    return (one for query in queries for one in query.lake if one.get("kind") == kind)


def _is_of(report: Report, dataset: DatasetBuilder) -> bool:
    table = str(report.get("table", ""))
    return bool(table) and (table == dataset.table_name or path_id(table) == dataset.id)


def _is_of_plan(dataset: DatasetBuilder) -> bool:
    known = dataset.facets.get("version")
    return known is None or known.get("datasetVersion") == dataset.plan_version


def _is_own(report: Report, run: Run) -> bool:
    """Whether Delta's current version is the one that the run has written, and not another writer's."""
    version, before = report["version"], report.get("before")
    if isinstance(before, int):
        return bool(version == before + 1)
    return version == 0 or _is_within(report, run)


def _is_within(report: Report, run: Run) -> bool:
    """Whether the version was written while the run lasted."""
    written = report.get("time")
    return isinstance(written, int) and run.ended is not None and run.started <= written <= run.ended


def _numbers(summary: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for key, value in summary.items():
        if str(value).isdigit():
            first, *rest = key.split("-")
            name = first + "".join(part.capitalize() for part in rest)
            found[_RENAMED.get(name, name)] = int(value)
    return found
