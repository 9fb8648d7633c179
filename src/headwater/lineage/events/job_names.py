"""Names of jobs: `{app}.{node}.{suffix}`, the same for every event of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwater.lineage.datasets.writes import WRITES
from headwater.lineage.extend.builders import DatasetBuilder
from headwater.lineage.extend.spark_objects import RDD
from headwater.lineage.naming.names import CHAIN_LENGTH, DatasetId, job_name, normalized, path_suffix
from headwater.lineage.runs import Run, RunKind
from headwater.lineage.settings import LineageSettings

ADAPTIVE = "AdaptiveSparkPlan"
CALL_SITE = re.compile(r" at .*:\d+\Z")


# The end of openlineage-spark's job names by command: the last two parts of the path that it writes, the
# identifier of its table, the table's own name, or an option. Other commands have none.
UPSTREAM_SUFFIXES = {
    **dict.fromkeys(
        (
            "InsertIntoHadoopFsRelationCommand",
            "InsertIntoHiveTable",
            "InsertIntoHiveDirCommand",
            "CreateTableCommand",
            "TruncateTableCommand",
            "MergeIntoCommand",
        ),
        "path",
    ),
    **dict.fromkeys(
        (
            "CreateHiveTableAsSelectCommand",
            "CreateDataSourceTableAsSelectCommand",
            "SaveAsV1TableCommand",
            "CreateDataSourceTableCommand",
            "LoadDataCommand",
            "CreateTableAsSelect",
            "ReplaceTableAsSelect",
            "CreateTable",
            "ReplaceTable",
            "AddColumns",
            "ReplaceColumns",
            "DropColumns",
            "RenameColumn",
            "AlterColumns",
            "AlterColumn",
            "SetTableProperties",
            "UnsetTableProperties",
            "SetTableLocation",
        ),
        "identifier",
    ),
    **dict.fromkeys(("AppendData", "ReplaceData", "WriteDelta"), "name"),
    "SaveIntoDataSourceCommand": "options",
}
_TABLES = ("table", "tableDesc", "name", "tableIdent")


class JobNames:
    """Job names from the application, the operation, and the written (else the read) dataset."""

    def __init__(self, settings: LineageSettings, app_name: str) -> None:
        self._settings = settings
        self._app = normalized(settings.app_name or app_name or "unknown") or "unknown"

    def of(self, run: Run, datasets: Sequence[DatasetBuilder], rdds: Sequence[RDD]) -> str:
        """The name of a run's job, computed once, so that the end has the name of START."""
        if run.cache.job_name is None:
            run.cache.job_name = self._name(run, datasets, rdds)
        return run.cache.job_name

    def _name(self, run: Run, datasets: Sequence[DatasetBuilder], rdds: Sequence[RDD]) -> str:
        dots = not self._settings.job_name_replace_dot
        if run.kind is RunKind.APPLICATION:
            return self._app
        if run.kind is RunKind.STREAM:
            return job_name(self._app, [self._stream(run)], dots=dots)
        suffix = self._suffix(datasets) if self._settings.job_name_append_dataset_name else ""
        if self._settings.is_like_upstream and suffix and run.kind is not RunKind.BATCH:
            suffix = self._upstream_suffix(run, datasets)
        if run.kind is RunKind.BATCH:
            return job_name(self._app, [self._stream(run), "micro_batch"], suffix, dots=dots)
        if self._settings.job_name_from_description and (said := _description(run)):
            return job_name(self._app, [said], dots=dots)
        if run.kind is RunKind.RDD_JOB:
            if self._settings.is_like_upstream:
                return job_name(self._app, [_upstream_chain(rdds)], dots=dots)
            return job_name(self._app, [_chain(rdds)], suffix, dots=dots)
        return job_name(self._app, [_node(run)], suffix, dots=dots)

    def _stream(self, run: Run) -> str:
        stream = run.stream
        if stream is None:
            return "streaming_query"
        return normalized(stream.name) if stream.name else f"streaming_query_{stream.id[:8]}"

    def _upstream_suffix(self, run: Run, outputs: Sequence[DatasetBuilder]) -> str:
        """As in openlineage-spark, where only some commands have one, each in its own form."""
        execution = run.execution
        try:
            top = execution.plan.top if execution is not None and execution.plan is not None else None
        except Exception:  # `spark_objects` reports a plan that cannot be read
            top = None
        if top is None:
            return ""
        fields = top.fields or {}
        form = UPSTREAM_SUFFIXES.get(top.simple)
        if form == "path":
            return _last_two(outputs[0].name) if outputs else ""
        if form == "identifier":
            return _identifier(
                next((fields[key] for key in _TABLES if isinstance(fields.get(key), dict)), {})
            )
        if form == "name":
            table = ((fields.get("table") or {}).get("f") or {}).get("table") or {}
            return str(table.get("name", "")).replace(".", "_")
        if form == "options":
            known = {str(key).lower(): str(value) for key, value in (fields.get("options") or {}).items()}
            if "delta" in str((fields.get("dataSource") or {}).get("cls", "")).lower() and known.get("path"):
                return _last_two(known["path"])
            key = "table" if "table" in known else next((key for key in known if "table" in key), "")
            return known.get(key, "").replace(".", "_")
        return ""

    def _suffix(self, datasets: Sequence[DatasetBuilder]) -> str:
        for dataset in datasets:
            links = (dataset.facets.get("symlinks") or {}).get("identifiers", ())
            table = next((link["name"] for link in links if link["type"] == "TABLE"), None)
            if table:
                return path_suffix(DatasetId("", str(table).replace("/", ".")))
            # a dataset that is named by the text of a query gives no suffix
            return "" if " " in dataset.name and "/" not in dataset.name else path_suffix(dataset.id)
        return ""


def _last_two(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    return "_".join(parts[-2:]).replace(".", "_") if "/" in path[1:] else path.replace(".", "_")


def _identifier(document: dict[str, Any]) -> str:
    if document.get("@") == "catalogTable":
        document = document["id"]
    inside = document.get("f") or {}
    document = inside.get("identifier") or document
    parts = [
        *(document.get("namespace") or [document.get("database")]),
        document.get("table") or document.get("name"),
    ]
    return "_".join(str(part) for part in parts if part).replace(".", "_")


def _description(run: Run) -> str:
    """The text that the program set by `setJobDescription`; empty without one."""
    execution = run.execution
    if execution is None or execution.start is None:
        text = run.properties.get("spark.job.description", "")
    else:
        text = execution.start.description
    # without a description of the program, Spark sets the call site
    return "" if CALL_SITE.search(text) else normalized(text)


def _node(run: Run) -> str:
    """The root of the physical plan; of a command the command itself, whether or not its query is planned
    adaptively: an additional shuffle must not change the name of the job.
    """
    execution = run.execution
    if execution is None:
        return "query"
    try:
        top = execution.plan.top if execution.plan is not None else None
    except Exception:  # `spark_objects` reports a plan that cannot be read
        top = None
    physical = execution.start.physical if execution.start is not None else ""
    if top is not None and (not physical or (physical == ADAPTIVE and top.simple in WRITES)):
        physical = f"Execute {top.simple}" if top.simple.endswith("Command") else top.simple
    if scan := re.match(r"Scan \w+", physical):
        physical = scan[0]  # without the table and the partitions after it
    return normalized(physical) or "query"


def _upstream_chain(rdds: Sequence[RDD]) -> str:
    """As openlineage-spark names an RDD job: by the names that the program gave, else by classes."""
    known = {rdd.id: rdd for rdd in rdds}
    names: dict[int, str] = {}
    for rdd in reversed(rdds):  # sources first
        parents = [known[number] for number in rdd.parents if number in known]
        own = rdd.name
        if (
            not own
            or any(own in path for path in rdd.paths)
            or (rdd.cls.endswith("MapPartitionsRDD") and bool(parents) and own == parents[0].name)
        ):
            own = normalized(re.sub(r"RDD\d*\Z", "", rdd.cls.rpartition(".")[2]))
        below = "_".join(names.get(parent.id, "") for parent in parents)[:CHAIN_LENGTH]
        names[rdd.id] = below if below.startswith(own) else f"{own}_{below}" if below else own
    return normalized(names[rdds[0].id]) if rdds else "rdd"


def _chain(rdds: Sequence[RDD]) -> str:
    parts: list[str] = []
    for rdd in rdds:
        part = normalized(rdd.cls.rpartition(".")[2].removesuffix("RDD"))
        if part and (not parts or parts[-1] != part):
            parts.append(part)
    return "_".join(parts)[:CHAIN_LENGTH].rstrip("_") or "rdd"
