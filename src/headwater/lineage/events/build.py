"""A run becomes an event, in the eight steps of the extension model.

    1 run facets   2 job facets
    3 inputs       4 facets of inputs in their role    5 facets of datasets, for the inputs
    6 outputs      7 facets of outputs in their role   8 facets of datasets, for the outputs

Steps 4, 5, 7 and 8 run only if there are such datasets, and their facets go to all of them. Statistics and
column lineage belong to one dataset. Each plan is analyzed once: the end event reuses the results of START.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.lineage.columns.outputs import OutputColumns
from headwater.lineage.datasets.catalogs import Catalogs
from headwater.lineage.datasets.ddl import changes_table
from headwater.lineage.datasets.merge import merged_inputs, merged_outputs
from headwater.lineage.datasets.plan_visits import CurrentQuery, PlanVisits, declared_inputs, declared_outputs
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.datasets.reads import Sources
from headwater.lineage.events.builtin import Application, BuiltinFactory
from headwater.lineage.events.debug_facet import DebugFacet
from headwater.lineage.events.job_names import JobNames
from headwater.lineage.events.size_limit import add_extraction_errors
from headwater.lineage.events.upstream_form import like_upstream
from headwater.lineage.extend.builders import (
    CustomFacetBuilder,
    DatasetBuilder,
    InputDatasetBuilder,
    OpenLineageContext,
    OutputDatasetBuilder,
)
from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.extend.isolation import Guard
from headwater.lineage.extend.loading import Extensions, Factory, find_factories
from headwater.lineage.extend.spark_objects import RDD, QueryExecution, run_objects
from headwater.lineage.facets.dataset import subset
from headwater.lineage.facets.make import PRODUCER, SCHEMA_URL, as_dict
from headwater.lineage.facets.run import error_message, parent_facet, source_code_location
from headwater.lineage.facets.statistics import add_input_statistics, add_output_statistics
from headwater.lineage.facets.versions import set_versions_read, set_versions_written
from headwater.lineage.jvm.agent import Agent, application_details
from headwater.lineage.naming.normalize import NameNormalizer
from headwater.lineage.runs import ExtractionError, Run, RunKind
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from pyspark import SparkContext

Event = dict[str, Any]
MAX_DATASETS = 1000  # inputs, and outputs, of one event: receivers slow down beyond a few hundred


def event_builder(
    spark_context: SparkContext, settings: LineageSettings, agent: Agent | None
) -> EventBuilder:
    """The builder of one application, with all extensions that are installed or set."""
    application = Application(
        str(spark_context.appName),
        str(spark_context.version),
        application_details(spark_context),
        source_code_location() if "sourceCodeLocation" not in settings.disabled_facets else None,
    )
    catalogs = Catalogs.of(spark_context, agent)
    factories, errors = find_factories(settings.extensions)
    made = EventBuilder(
        settings, catalogs, factories, application=application, spark_context=spark_context, agent=agent
    )
    made.extensions.errors += errors
    if made.extensions.has_user_builders and agent is not None:
        agent.include_rdds_of_queries()
    return made


class EventBuilder:
    """Builds events; one thread calls it. `agent` gives access to the JVM's objects, None without one."""

    def __init__(
        self,
        settings: LineageSettings,
        catalogs: Catalogs,
        factories: Iterable[Factory] = (),
        *,
        application: Application | None = None,
        spark_context: SparkContext | None = None,
        agent: Agent | None = None,
    ) -> None:
        application = application or Application()
        self.context = context = OpenLineageContext(spark_context)
        FacetRegistry.context = context
        self._settings = settings
        self._agent = agent
        self._catalogs = catalogs
        # Half of the time is for extensions: Headwater's own builders must still finish after one has hung.
        self._guard = Guard(settings.deadline_millis / 1000 * min(0.5, settings.dataset_percent / 100))
        self._query = CurrentQuery()
        history = QueryHistory()
        visits = PlanVisits(context, self._guard, self._query, agent)
        builtin = BuiltinFactory(settings, application, Sources(catalogs), visits, self._query, history)
        self.extensions = Extensions(context, self._guard, builtin, factories)
        self._names = NameNormalizer(
            disabled_trimmers=settings.dataset_disabled_trimmers,
            extra_trimmers=settings.dataset_extra_trimmers,
            remove_pattern=settings.dataset_remove_path or "",
            resolvers=settings.dataset_namespace_resolvers,
        )
        self._debug = DebugFacet(settings, application.spark_version, spark_context)
        self._job_names = JobNames(settings, application.name)
        self._columns = OutputColumns(settings, visits, history)
        self._is_first = True

    def build(self, run: Run, state: str, time: int) -> Event:
        """The whole event of a run in a state; `time` in milliseconds."""
        until = (
            clock.monotonic() + self._settings.deadline_millis / 1000 * self._settings.dataset_percent / 100
        )
        context, guard = self.context, self._guard
        guard.start_event()
        errors = list(run.extraction_errors)
        if self._is_first:
            errors += self.extensions.errors
            self._is_first = False
        objects = run_objects(run, self._agent, errors)
        self._query.is_end = run.ended is not None
        # a table that a command has changed is looked up again at the end
        changes = any(changes_table(each.plan) for each in objects if isinstance(each, QueryExecution))
        self._catalogs.stream = (run.stream.name or "") if run.stream is not None else ""

        run_facets = self._facets(context.run_facet_builders, objects, "run")  # 1
        job_facets = self._facets(context.job_facet_builders, objects, "job")  # 2

        read = self._made(run, "inputs", context.input_dataset_builders, objects, changes)
        errors += _unknown(run, "inputs", read)
        declared = declared_inputs(run, objects)
        inputs = merged_inputs([*declared, *read], self._names)  # 3
        if inputs:
            stages = run.stages if run.kind is RunKind.RDD_JOB else ()
            set_versions_read(inputs, objects)
            add_input_statistics(inputs, [nodes for _, nodes in _executed(objects)], stages)
            self._add_facets(inputs, context.input_dataset_facet_builders, objects, "input")  # 4
            self._add_facets(inputs, context.dataset_facet_builders, objects, "dataset")  # 5

        written = self._made(run, "outputs", context.output_dataset_builders, objects, changes)
        declared_written = declared_outputs(run, objects)
        errors += [] if declared_written else _unknown(run, "outputs", written)
        outputs = merged_outputs(declared_written or written, self._names)  # 6
        self._columns.add(run, inputs, outputs, objects, until, errors, declared)
        if outputs:
            set_versions_written(outputs, objects, run)
            add_output_statistics(outputs, _executed(objects), run.stages)
            self._add_facets(outputs, context.output_dataset_facet_builders, objects, "output")  # 7
            self._add_facets(outputs, context.dataset_facet_builders, objects, "dataset")  # 8

        rdds = [each for each in objects if isinstance(each, RDD)]
        # when a micro-batch starts, the writes of a foreachBatch are not known; its name must not change
        named = outputs if run.kind is RunKind.BATCH else [*outputs, *inputs]
        name = self._job_names.of(run, named, rdds)
        event = self._event(run, state, time, name)
        event["run"]["facets"].update(run_facets)
        event["job"]["facets"].update(job_facets)
        event["inputs"] = [_dataset(each, "input", self._settings) for each in inputs[:MAX_DATASETS]]
        event["outputs"] = [_dataset(each, "output", self._settings) for each in outputs[:MAX_DATASETS]]
        for side, found in (("inputs", inputs), ("outputs", outputs)):
            if len(found) > MAX_DATASETS:
                errors.append(ExtractionError(side, f"{len(found) - MAX_DATASETS} of {len(found)} left out"))
        errors += guard.errors
        if self._settings.is_like_upstream:
            like_upstream(event, objects, inputs, self._settings.disabled_facets, self._agent)
        self._drop_disabled(event)
        if self._settings.is_like_upstream:
            self._debug.add(event, objects, self._catalogs.conf)
        if "extractionError" not in self._settings.disabled_facets:
            add_extraction_errors(event, errors)
        return event

    def partial(self, run: Run, state: str, time: int) -> Event:
        """The event with names, parents and the run's error, without calling any builder."""
        event = self._event(run, state, time, self._job_names.of(run, (), ()))
        if error := error_message(run):
            event["run"]["facets"]["errorMessage"] = error
        self._drop_disabled(event)
        return event

    def _event(self, run: Run, state: str, time: int, name: str) -> Event:
        facets: dict[str, Any] = {}
        parent = parent_facet(run, self._settings, lambda other: self._job_names.of(other, (), ()))
        if parent is not None:
            facets["parent"] = parent
        moment = datetime.fromtimestamp(time / 1000, UTC)
        return {
            "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "producer": PRODUCER,
            "schemaURL": SCHEMA_URL,
            "eventType": str(state),
            "run": {"runId": str(run.id), "facets": facets},
            "job": {"namespace": self._settings.namespace, "name": name, "facets": {}},
            "inputs": [],
            "outputs": [],
        }

    def _facets(
        self, builders: Sequence[CustomFacetBuilder[Any, Any]], objects: Sequence[object], container: str
    ) -> dict[str, Any]:
        made = [self._guard.call(each, _accepting(each, objects, container)) for each in builders]
        return {key: facet for pairs in made for key, facet in pairs or ()}

    def _made(
        self, run: Run, side: str, builders: Sequence[Any], objects: Sequence[object], changes: bool
    ) -> list[tuple[int, Any]]:
        """The datasets of every builder for every object, with the id of the SQL execution.

        Built-in builders are called once for each execution, and again at its end if a command changes a
        table; those of extensions are called for every event.
        """
        known = run.cache.datasets
        found: list[tuple[int, Any]] = []
        for builder in builders:
            for event in objects:
                number = event.id if isinstance(event, QueryExecution) else -1
                if number >= 0 and self._guard.is_builtin(builder):
                    self._catalogs.database = event.database or "default"  # type: ignore[attr-defined]
                    self._catalogs.session = event.session_conf  # type: ignore[attr-defined]
                    key = (side, number, id(builder), self._query.is_end and changes)
                    if key not in known and event.plan is not None:  # type: ignore[attr-defined]
                        answer = self._guard.call(builder, _applying(builder, event))
                        if answer is not None:  # an abandoned build must not leave its gaps to the next
                            known[key] = answer
                    made = known.get(key, [])
                else:
                    made = self._guard.call(builder, _applying(builder, event)) or []
                found += [(number, each) for each in made]
        return found

    def _add_facets(
        self,
        datasets: Iterable[DatasetBuilder],
        builders: Sequence[CustomFacetBuilder[Any, Any]],
        objects: Sequence[object],
        container: str,
    ) -> None:
        facets = self._facets(builders, objects, container)
        for dataset in datasets:
            target = dataset.facets if container == "dataset" else dataset.role_facets
            for key, facet in facets.items():
                target.setdefault(key, facet)  # a facet of this dataset alone is more exact

    def _drop_disabled(self, event: Event) -> None:
        off = self._settings.disabled_facets
        for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
            for kind in ("facets", "inputFacets", "outputFacets"):
                for key in off & (part.get(kind) or {}).keys():
                    del part[kind][key]


def _unknown(run: Run, side: str, found: Iterable[tuple[int, DatasetBuilder]]) -> list[ExtractionError]:
    """The datasets whose names are not known, each reason once; the run's events are sent because of them."""
    reasons = dict.fromkeys(each.unknown for _, each in found if each.unknown)
    run.cache.has_unknown = run.cache.has_unknown or bool(reasons)
    return [ExtractionError(side, reason) for reason in reasons]


def _accepting(
    builder: CustomFacetBuilder[Any, Any], objects: Sequence[object], container: str
) -> Callable[[], list[tuple[str, dict[str, Any]]]]:
    def accept() -> list[tuple[str, dict[str, Any]]]:
        made: list[tuple[str, dict[str, Any]]] = []
        for event in objects:
            if builder.is_defined_at(event):
                builder.accept(event, lambda key, facet: made.append((str(key), as_dict(facet, container))))
        return made

    return accept


def _applying(builder: Any, event: object) -> Callable[[], list[Any]]:
    return lambda: list(builder.apply(event)) if builder.is_defined_at(event) else []


def _executed(objects: Iterable[object]) -> list[tuple[int, Sequence[Any]]]:
    return [(each.id, each.executed) for each in objects if isinstance(each, QueryExecution)]


def _dataset(
    builder: InputDatasetBuilder | OutputDatasetBuilder, role: str, settings: LineageSettings
) -> Event:
    own = dict(builder.role_facets)
    if builder.locations and "subset" not in own:
        own["subset"] = subset(builder.locations, role)
    return {
        "namespace": builder.namespace,
        "name": builder.name,
        "facets": {key: as_dict(facet, "dataset") for key, facet in builder.facets.items()},
        f"{role}Facets": {key: as_dict(facet, role) for key, facet in own.items()},
    }
