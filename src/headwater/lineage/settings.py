"""Settings of lineage, with the keys of openlineage-spark and openlineage-python.

Each key may be set in three places; the first that has it wins:

    spark.openlineage.jobName.appendDatasetName=false     Spark's configuration
    jobName: {appendDatasetName: false}                   openlineage.yml, where openlineage-python has it
    OPENLINEAGE__JOB_NAME__APPEND_DATASET_NAME=false      the environment

A value that is not valid is logged and its default holds: lineage never stops a job (G10). A choice that
does not exist is an error, as it is as an argument of `install`: there is a warning, and no lineage. A
setting that nothing reads is logged (unused_settings.py).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headwater.lineage.setting_sources import Found, find
from headwater.lineage.unused_settings import warn_of_unused

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
Positive = Annotated[int, msgspec.Meta(ge=1)]
Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]


def _set(key: str, text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra={"key": key})


class ParentRun(msgspec.Struct, frozen=True):
    """A run of another system: the task that started this application, or the root of that task."""

    namespace: str
    name: str
    run_id: str


class LineageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings; `key` follows `spark.openlineage.`"""

    disabled: Annotated[bool, _set("disabled", "No lineage at all.")] = False
    namespace: Annotated[str, _set("namespace", "Namespace of this application's jobs.")] = "default"
    app_name: Annotated[
        str | None, _set("appName", "First part of job names, instead of the application's.")
    ] = None
    application_run_id: Annotated[
        str | None, _set("applicationRunId", "Run id of the application, a UUID; default: a new one.")
    ] = None
    parent_job_namespace: Annotated[
        str | None, _set("parentJobNamespace", "Namespace of the job that started the application.")
    ] = None
    parent_job_name: Annotated[str | None, _set("parentJobName", "Name of that job.")] = None
    parent_run_id: Annotated[str | None, _set("parentRunId", "Its run id, a UUID.")] = None
    root_parent_job_namespace: Annotated[
        str | None, _set("rootParentJobNamespace", "Namespace of the job at the top of the tree.")
    ] = None
    root_parent_job_name: Annotated[str | None, _set("rootParentJobName", "Name of that job.")] = None
    root_parent_run_id: Annotated[str | None, _set("rootParentRunId", "Its run id, a UUID.")] = None
    context: Annotated[
        str | None,
        _set(
            "context", "All six of parent and root parent as one JSON text: `{run, job, root: {run, job}}`."
        ),
    ] = None

    transport: Annotated[
        dict[str, Any],
        _set(
            "transport",
            "Where events go: `type`, `url` and the other keys of openlineage-python's transports.",
        ),
    ] = {}
    disabled_facets: Annotated[
        frozenset[str], _set("facets.<name>.disabled", "Facets that are not sent, by key.")
    ] = frozenset({"debug", "spark.logicalPlan", "spark_unknown"})
    environment_variables: Annotated[
        tuple[str, ...],
        _set(
            "facets.custom_environment_variables",
            "Variables in the environmentVariables facet, and in openlineage-spark's `environment-properties`"
            " where events have its form. `facets.variables` is the same.",
        ),
    ] = ()
    captured_properties: Annotated[
        tuple[str, ...], _set("capturedProperties", "Spark properties in the spark_properties facet.")
    ] = ("spark.master", "spark.app.name")

    dataset_remove_path: Annotated[
        str | None,
        _set(
            "dataset.removePath.pattern", "Regular expression; its group `remove` is cut from dataset names."
        ),
    ] = None
    dataset_namespace_resolvers: Annotated[
        dict[str, Any],
        _set("dataset.namespaceResolvers", "Several hosts under one name: hostList, pattern, patternGroup."),
    ] = {}
    dataset_disabled_trimmers: Annotated[
        tuple[str, ...], _set("dataset.disabledTrimmers", "Trimmers of partition folders to switch off.")
    ] = ()
    dataset_extra_trimmers: Annotated[
        tuple[str, ...], _set("dataset.extraTrimmers", "Further trimmers, by dotted name of a Python class.")
    ] = ()
    job_name_append_dataset_name: Annotated[
        bool, _set("jobName.appendDatasetName", "Put the written dataset's name into the job's.")
    ] = True
    job_name_replace_dot: Annotated[
        bool, _set("jobName.replaceDotWithUnderscore", "No dots in job names.")
    ] = False
    job_name_from_description: Annotated[
        bool,
        _set(
            "jobName.fromDescription",
            "Name a job by its `setJobDescription`, if the program has set one.",
        ),
    ] = False
    job_owners: Annotated[dict[str, str], _set("job.owners", "Owners of the jobs, by type.")] = {}
    job_tags: Annotated[
        tuple[str, ...], _set("job.tags", "Tags of jobs: `key`, `key:value` or `key:value:source`.")
    ] = ()
    run_tags: Annotated[tuple[str, ...], _set("run.tags", "Tags of runs, likewise.")] = ()

    column_lineage_datasets: Annotated[
        bool,
        _set(
            "columnLineage.datasetLineageEnabled",
            "List filters, joins and groupings once for the dataset, not for each column.",
        ),
    ] = True
    column_lineage_descriptions: Annotated[
        bool,
        _set("columnLineage.descriptionsEnabled", "Add the expression of each column as its description."),
    ] = False
    column_lineage_max_columns: Annotated[
        Positive,
        _set(
            "columnLineage.schemaSizeLimit",
            "Columns of an output in the facet; it states how many more there are.",
        ),
    ] = 10_000
    column_lineage_max_edges: Annotated[
        Positive, _set("columnLineage.edgeLimit", "Edges after which the facet is cut, which it states.")
    ] = 1_000_000
    explicit_lineage: Annotated[
        bool, _set("columnLineage.lineageFacetEnabled", "Also send the newer `lineage` facet.")
    ] = False

    reads: Annotated[
        Literal["all", "upstream", "none"],
        _set(
            "filter.reads",
            "Events for queries that write nothing, such as `collect` and `show`: `all`; `upstream`, those"
            " of openlineage-spark; `none`. Failed queries are always sent.",
        ),
    ] = "all"
    denied_nodes: Annotated[
        tuple[str, ...],
        _set("filter.deniedSparkNodes", "No events for queries whose plan begins with such a node."),
    ] = ()
    allowed_nodes: Annotated[
        tuple[str, ...],
        _set("filter.allowedSparkNodes", "Events for such queries in spite of the other filters."),
    ] = ()
    rdd_events_disabled: Annotated[bool, _set("filter.rddEventsDisabled", "No events for RDD jobs.")] = False

    compatibility: Annotated[
        Literal["headwater", "openlineage-spark"],
        _set(
            "headwater.compatibility",
            "`openlineage-spark`: job names, RUNNING events and facets as that agent sends them; the default"
            " where Spark's configuration has a setting `spark.openlineage.*`.",
        ),
    ] = "headwater"
    extensions: Annotated[
        tuple[str, ...],
        _set(
            "headwater.extensions",
            "Factories of builders by dotted name, beside those found as entry points.",
        ),
    ] = ()
    deadline_millis: Annotated[
        Positive,
        _set("headwater.deadlineMillis", "Time to build one event; after it the event is partial."),
    ] = 10_000
    exit_millis: Annotated[
        int,
        _set("headwater.exitMillis", "Longest time that the end of the job waits for events to be sent."),
    ] = 10_000
    event_bytes: Annotated[
        Positive,
        _set(
            "headwater.eventBytes", "A larger event loses its largest facets; `extractionError` names them."
        ),
    ] = MIB
    facet_bytes: Annotated[
        Positive, _set("headwater.facetBytes", "A larger facet is removed; `extractionError` names it.")
    ] = MIB // 2
    queue_events: Annotated[
        Positive,
        _set(
            "headwater.queueEvents", "Events in the queue of the transport; above it the oldest are dropped."
        ),
    ] = 10_000
    queue_bytes: Annotated[Positive, _set("headwater.queueBytes", "Bytes of events in that queue.")] = (
        64 * MIB
    )
    spool: Annotated[
        str | None,
        _set(
            "headwater.spool",
            "Folder of the durable spool before the http transport; needs `headwater[spool]`.",
        ),
    ] = None
    memory_threshold: Annotated[
        int,
        _set(
            "circuitBreaker.memoryThreshold",
            "Percent of the driver's heap that must be free for a plan to be read.",
        ),
    ] = 5

    gc_cpu_threshold: Annotated[
        int,
        _set(
            "circuitBreaker.gcCpuThreshold",
            "Percent of the time that the collector of the old generation takes. With"
            " `circuitBreaker.type=javaRuntime` plans are not read where it takes as much, and less memory is"
            " free than `circuitBreaker.memoryThreshold`.",
        ),
    ] = 10
    circuit_breaker: Annotated[
        str,
        _set(
            "circuitBreaker.type",
            "`javaRuntime`: the collector must be busy too. With every other type memory decides alone.",
        ),
    ] = "simpleMemory"
    timeout_seconds: Annotated[
        Positive | None,
        _set(
            "circuitBreaker.timeoutInSeconds",
            "openlineage-spark's key for `headwater.deadlineMillis`, which wins if both are set.",
        ),
    ] = None

    dataset_percent: Annotated[
        Percent,
        _set(
            "timeout.buildDatasetsTimePercentage",
            "Percent of the deadline for datasets and columns; what is not ready then is left out. Extensions"
            " have half of the deadline at most.",
        ),
    ] = 90
    facet_percent: Annotated[
        Percent,
        _set(
            "timeout.facetsBuildingTimePercentage",
            "Percent of the deadline after which a partial event is sent.",
        ),
    ] = 100
    debug_smart: Annotated[
        bool,
        _set(
            "debug.smart",
            "Add the `debug` facet to the end of queries without inputs or outputs, where events have the"
            " form of openlineage-spark's.",
        ),
    ] = False
    debug_smart_mode: Annotated[
        Literal["any-missing", "output-missing"],
        _set("debug.smartMode", "`output-missing`: only if there are no outputs."),
    ] = "any-missing"
    debug_kilobytes: Annotated[
        Positive,
        _set(
            "debug.payloadSizeLimitInKilobytes",
            "A larger `debug` facet is replaced by a line that says so.",
        ),
    ] = 100
    iceberg_reports_disabled: Annotated[
        bool,
        _set(
            "vendors.iceberg.metricsReporterDisabled",
            "No `icebergScanReport` and no `icebergCommitReport`.",
        ),
    ] = False

    @property
    def is_like_upstream(self) -> bool:
        """Whether events have the form of openlineage-spark's."""
        return self.compatibility == "openlineage-spark"

    properties: dict[str, str] = {}
    """All settings by key, for extensions and for keys without a field."""

    @property
    def parent(self) -> ParentRun | None:
        """The run that started the application, if all of its parts are set."""
        return _parent(self.parent_job_namespace or self.namespace, self.parent_job_name, self.parent_run_id)

    @property
    def root_parent(self) -> ParentRun | None:
        """The run at the top of the tree; the parent if it is not set."""
        found = _parent(
            self.root_parent_job_namespace or self.parent_job_namespace or self.namespace,
            self.root_parent_job_name,
            self.root_parent_run_id,
        )
        return found or self.parent


KEYS: dict[str, str] = {
    str(meta.extra["key"]): field.name
    for field in msgspec.structs.fields(LineageSettings)
    for meta in getattr(field.type, "__metadata__", ())
    if meta.extra
}
ALSO = {"facets.custom_environment_variables": "facets.variables"}  # as openlineage-spark's page has it


def _parent(namespace: str, name: str | None, run_id: str | None) -> ParentRun | None:
    from uuid import UUID

    if not name or not run_id:
        return None
    try:
        return ParentRun(namespace, name, str(UUID(run_id)))
    except ValueError:
        logger.warning("No parent run: %r is not a UUID.", run_id)
        return None


def read(
    spark: Mapping[str, str],
    *,
    environ: Mapping[str, str] = os.environ,
    given: Mapping[str, Any] | None = None,
) -> LineageSettings:
    """The settings; `given` are the arguments of `install` by field, which have precedence."""
    found = find(spark, environ)
    values: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(LineageSettings)}
    for key, name in KEYS.items():
        values |= _value(fields[name], key, found)
    values |= _context(values.get("context"))
    if (seconds := values.pop("timeout_seconds", None)) is not None:
        values.setdefault("deadline_millis", seconds * 1000)
    if "facet_percent" in values:
        deadline = values.get("deadline_millis", fields["deadline_millis"].default)
        values["deadline_millis"] = max(1, deadline * values["facet_percent"] // 100)
    if values.get("iceberg_reports_disabled"):
        values["disabled_facets"] |= {"icebergScanReport", "icebergCommitReport"}
    warn_of_unused(found, set(KEYS))
    values |= _legacy_url(values)
    if found.is_of_spark and "compatibility" not in values:
        values["compatibility"] = "openlineage-spark"
    if values.get("compatibility") == "openlineage-spark":
        values.setdefault("reads", "upstream")
    if environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        values["disabled"] = True
    if "namespace" not in values and environ.get("OPENLINEAGE_NAMESPACE"):
        values["namespace"] = environ["OPENLINEAGE_NAMESPACE"]
    values["properties"] = found.flat()
    values |= dict(given or {})
    return msgspec.convert(values, LineageSettings, strict=False)


def _value(field: msgspec.structs.FieldInfo, key: str, found: Found) -> dict[str, Any]:
    """The field's value, if a valid one is set."""
    if key == "facets.<name>.disabled":
        default: frozenset[str] = field.default
        changed = found.disabled_facets()
        return {
            field.name: (default - {k for k, off in changed.items() if not off})
            | {k for k, off in changed.items() if off}
        }
    wanted = msgspec.inspect.type_info(field.type)
    while isinstance(wanted, msgspec.inspect.Metadata):
        wanted = wanted.type
    if isinstance(wanted, msgspec.inspect.DictType):
        value: Any = found.tree(key)
    elif isinstance(wanted, msgspec.inspect.VarTupleType):
        value = found.array(key)
        if value is None and key in ALSO:
            value = found.array(ALSO[key])
    else:
        value = found.text(key)
    if value is None:
        return {}
    try:
        return {field.name: msgspec.convert(value, field.type, strict=False)}
    except msgspec.ValidationError as error:
        if isinstance(wanted, msgspec.inspect.LiteralType):
            raise msgspec.ValidationError(
                f"lineage setting {key}={value!r} is none of {', '.join(map(str, wanted.values))}"
            ) from error
        logger.warning("Lineage setting %s=%r is not used: %s", key, value, error)
        return {}


def _legacy_url(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a URL of openlineage-spark's old form; those that are set by their own keys stay.

    `http://host/api/v1/namespaces/shop/jobs/etl/runs/<uuid>?app_name=load&api_key=…`
    """
    transport = values.get("transport") or {}
    parts = urlsplit(str(transport.get("url", "")))
    found = re.fullmatch(
        r"(?P<path>.*?/api/v\d+)/namespaces/(?P<namespace>[^/]+)(/jobs/(?P<job>[^/]+)(/runs/(?P<run>[^/]+))?)?/?",
        parts.path,
    )
    if found is None:
        return {}
    given = dict(parse_qsl(parts.query))
    made: dict[str, Any] = {"transport": dict(transport)}
    made["transport"]["url"] = f"{parts.scheme}://{parts.netloc}"
    made["transport"].setdefault("endpoint", f"{found['path'].lstrip('/')}/lineage")
    if "api_key" in given and "auth" not in transport:
        made["transport"]["auth"] = {"type": "api_key", "apiKey": given["api_key"]}
    named = {
        "namespace": unquote(found["namespace"]),
        "app_name": given.get("app_name"),
        "parent_job_name": unquote(found["job"] or "") or None,
        "parent_job_namespace": unquote(found["namespace"]) if found["job"] else None,
        "parent_run_id": found["run"],
    }
    return made | {key: value for key, value in named.items() if value and key not in values}


def _context(text: str | None) -> dict[str, str]:
    """The six settings in `context`."""
    if not text:
        return {}
    try:
        tree = msgspec.json.decode(text)
        named = {"parent": tree, "root_parent": tree.get("root") or {}}
        found = {}
        for prefix, each in named.items():
            if each.get("run") and each.get("job"):
                found[f"{prefix}_run_id"] = str(each["run"]["runId"])
                found[f"{prefix}_job_name"] = str(each["job"]["name"])
                found[f"{prefix}_job_namespace"] = str(each["job"]["namespace"])
        return found
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        logger.warning("Lineage setting context is not used: %s", error)
        return {}
