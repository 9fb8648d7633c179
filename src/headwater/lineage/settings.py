"""Settings of lineage, with the keys of openlineage-spark and openlineage-python.

Each key may be set in three places; the first that has it wins:

    spark.openlineage.jobName.appendDatasetName=false     Spark's configuration
    jobName: {appendDatasetName: false}                   openlineage.yml, where openlineage-python has it
    OPENLINEAGE__JOB_NAME__APPEND_DATASET_NAME=false      the environment

A value that is not valid is logged and its default holds: lineage never stops a job (G10). A setting of
openlineage-spark that Headwater does not use is logged, too.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headwater.yaml_text import BadYaml, load_yaml

logger = logging.getLogger(__name__)

SPARK_PREFIX = "spark.openlineage."
ENVIRONMENT_PREFIX = "OPENLINEAGE__"
MIB = 1024 * 1024
Positive = Annotated[int, msgspec.Meta(ge=1)]
# Settings of openlineage-spark that Headwater does not use, with the reason.
UNUSED = {
    "circuitBreaker": "only memoryThreshold and timeoutInSeconds are used; lineage never blocks the job",
    "timeout": "an event has one deadline, headwater.deadlineMillis",
    "debug": "there is no debug facet",
    "metrics": "lineage keeps no metrics in the driver",
    "vendors": "Iceberg and Delta are always read",
    "testExtensionProvider": "extensions are Python; see headwater.extensions",
}
USED = {"circuitBreaker.type", "circuitBreaker.memoryThreshold", "circuitBreaker.timeoutInSeconds"}


def find(spark: Mapping[str, str], environ: Mapping[str, str]) -> Found:
    """The settings of each source, in order of precedence."""
    own = {key[len(SPARK_PREFIX) :]: value for key, value in spark.items() if key.startswith(SPARK_PREFIX)}
    return Found([own, dict(_flat(_file(environ))), dict(_environment(environ))])


class Found:
    """Settings as dotted keys, from several sources. Keys are compared without case and underscores."""

    def __init__(self, sources: list[dict[str, Any]]) -> None:
        self._sources = [{_normal(key): (key, value) for key, value in source.items()} for source in sources]

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark's configuration has settings of openlineage-spark; `headwater.*` are only ours."""
        return any(not key.startswith("headwater.") for key in self._sources[0])

    def text(self, key: str) -> Any:
        """One value, or None."""
        wanted = _normal(key)
        return next((source[wanted][1] for source in self._sources if wanted in source), None)

    def array(self, key: str) -> list[str] | None:
        """`[a;b]`, `a,b`, or a list of YAML."""
        value = self.text(key)
        if value is None or isinstance(value, list):
            return value
        text = str(value).strip()
        parts = (
            text[1:-1].split(";")
            if text.startswith("[") and text.endswith("]")
            else text.replace(";", ",").split(",")
        )
        return [part.strip() for part in parts if part.strip()]

    def tree(self, key: str) -> dict[str, Any] | None:
        """The settings below the key, from the first source that has any."""
        prefix = _normal(key) + "."
        for source in self._sources:
            found: dict[str, Any] = {}
            for wanted, (written, value) in source.items():
                if wanted.startswith(prefix):
                    _put(found, written.split(".")[key.count(".") + 1 :], value)
            if found:
                return found
        return None

    def disabled_facets(self) -> dict[str, bool]:
        """Whether each facet is disabled; `facets.disabled=[a;b]` is the old form."""
        found = dict.fromkeys(self.array("facets.disabled") or [], True)
        for source in reversed(self._sources):
            for written, value in source.values():
                parts = written.split(".")
                if len(parts) > 2 and parts[0].lower() == "facets" and parts[-1].lower() == "disabled":
                    found[".".join(parts[1:-1])] = str(value).strip().lower() == "true"
        return found

    def flat(self) -> dict[str, str]:
        """All settings by key, without the transport's, which hold secrets (G12)."""
        every = [pair for source in reversed(self._sources) for pair in source.values()]
        return {key: str(value) for key, value in every if not _normal(key).startswith("transport.")}


def _normal(key: str) -> str:
    return key.replace("_", "").lower()


_UNUSED = {_normal(key): reason for key, reason in UNUSED.items()}
_USED = {_normal(key) for key in USED}


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[path[-1]] = value


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, tree


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
        if value.lstrip().startswith(("{", "[")):
            try:  # JSON at any level, as in openlineage-python
                yield from _flat(load_yaml(value), key)
                continue
            except BadYaml:
                pass
        yield key, value


def _file(environ: Mapping[str, str]) -> Any:
    """openlineage.yml from the places of openlineage-python."""
    named = environ.get("OPENLINEAGE_CONFIG")
    for path in [
        *([Path(named)] if named else []),
        Path("openlineage.yml"),
        Path("~/.openlineage/openlineage.yml"),
    ]:
        try:
            found = path.expanduser()
            if found.is_file():
                return load_yaml(found.read_text(encoding="utf-8"))
        except BadYaml as error:
            if error.value is not None:
                logger.warning("%s: %s; the last one is used", path, error)
                return error.value
            logger.warning("%s is not used: %s", path, error)
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            logger.warning("%s is not used: %s", path, error)
    return None


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
        _set("facets.custom_environment_variables", "Variables in the environmentVariables facet."),
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

    timeout_seconds: Annotated[
        Positive | None,
        _set(
            "circuitBreaker.timeoutInSeconds",
            "openlineage-spark's key for `headwater.deadlineMillis`, which wins if both are set.",
        ),
    ] = None

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
    for field in msgspec.structs.fields(LineageSettings):
        meta = next((each for each in getattr(field.type, "__metadata__", ()) if each.extra), None)
        if meta is None:
            continue
        values |= _value(field, str(meta.extra["key"]), found)
    values |= _context(values.get("context"))
    if (seconds := values.pop("timeout_seconds", None)) is not None:
        values.setdefault("deadline_millis", seconds * 1000)
    _warn_of_unused(found)
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
    else:
        value = found.text(key)
    if value is None:
        return {}
    try:
        return {field.name: msgspec.convert(value, field.type, strict=False)}
    except msgspec.ValidationError as error:
        logger.warning("Lineage setting %s=%r is not used: %s", key, value, error)
        return {}


def _warn_of_unused(found: Found) -> None:
    for key in sorted(found.flat()):
        reason = _UNUSED.get(_normal(key).partition(".")[0])
        if reason is not None and _normal(key) not in _USED:
            logger.warning("Lineage setting %s is not used: %s.", key, reason)


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
