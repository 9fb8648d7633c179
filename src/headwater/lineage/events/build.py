"""A run becomes an event, in the eight steps of the extension model.

    1 run facets   2 job facets
    3 inputs       4 facets of inputs in their role    5 facets of datasets, for the inputs
    6 outputs      7 facets of outputs in their role   8 facets of datasets, for the outputs

Steps 4, 5, 7 and 8 happen only if there are such datasets, and their facets go to all of them. What is tied
to one dataset, its numbers and its columns, is put on that one. Work is done once a plan: what START found,
the end uses.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.lineage.datasets.ddl import is_change
from headwater.lineage.datasets.merge import merged_inputs, merged_outputs
from headwater.lineage.datasets.node_lineage import asking_of
from headwater.lineage.datasets.session_lookup import surroundings_of
from headwater.lineage.events.builtin import BuiltinFactory
from headwater.lineage.events.columns import Columns
from headwater.lineage.events.job_names import JobNames
from headwater.lineage.events.size_limit import add_extraction_errors
from headwater.lineage.events.spark_objects import objects_of, rdds_of
from headwater.lineage.extend.builders import (
    CustomFacetBuilder,
    DatasetBuilder,
    InputDatasetBuilder,
    OutputDatasetBuilder,
)
from headwater.lineage.extend.context import Extensions, OpenLineageContext, factories_of
from headwater.lineage.extend.declared import declared_inputs, declared_outputs
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.dataset import subset
from headwater.lineage.facets.job import source_code_location
from headwater.lineage.facets.make import PRODUCER, SCHEMA_URL, as_dict
from headwater.lineage.facets.run import ErrorMessage, parent_facet
from headwater.lineage.facets.statistics import add_input_statistics, add_output_statistics
from headwater.lineage.jvm.agent import Agent, application_details
from headwater.lineage.runs import ExtractionError, Run
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["EventBuilder", "event_builder"]

Event = dict[str, Any]
MOST_INPUTS = 1000  # and outputs, of one event; receivers take no more than a few hundred gladly


def event_builder(
    spark_context: SparkContext, settings: LineageSettings, agent: Agent | None
) -> EventBuilder:
    """The builder of one application, with all extensions that are installed or set."""
    version, details = str(spark_context.version), application_details(spark_context)
    around = surroundings_of(spark_context, agent)
    context = OpenLineageContext(settings, around, spark_context)
    source_code = None
    if "sourceCodeLocation" not in settings.disabled_facets:
        source_code = source_code_location()
    found, errors = factories_of(settings)
    extensions = Extensions(context, [BuiltinFactory(version, details, source_code)], found)
    extensions.errors += errors
    if extensions.has_foreign and agent is not None:
        agent.include_rdds_of_queries()
    context.asking = asking_of(context, agent)
    return EventBuilder(settings, context, extensions, agent=agent, app_name=str(spark_context.appName))


class EventBuilder:
    """Builds events; one thread calls it. `agent` is the way to the JVM's objects, None without one."""

    def __init__(
        self,
        settings: LineageSettings,
        context: OpenLineageContext,
        extensions: Extensions,
        *,
        agent: Agent | None = None,
        app_name: str = "unknown",
    ) -> None:
        self.context = context
        self._settings = settings
        self._extensions = extensions
        self._agent = agent
        self._names = JobNames(settings, app_name)
        self._columns = Columns(settings, context)
        self._is_first = True

    def build(self, run: Run, state: str, time: int) -> Event:
        """The whole event of a run in a state; `time` in milliseconds."""
        until = clock.monotonic() + self._settings.deadline_millis / 1000 * 0.9
        context, guard = self.context, self.context.guard
        guard.start_event()
        errors = list(run.extraction_errors)
        if self._is_first:
            errors += self._extensions.errors
            self._is_first = False
        objects = objects_of(run, self._agent, errors)
        context.is_end = run.ended is not None
        # what a command changes is looked up once more when it is done
        is_change_of_table = any(is_change(each.plan) for each in objects if isinstance(each, QueryExecution))
        context.surroundings.stream = (run.stream.name or "") if run.stream is not None else ""

        run_facets = self._facets(context.run_facet_builders, objects, "run")  # 1
        job_facets = self._facets(context.job_facet_builders, objects, "job")  # 2

        read = self._made(run, "inputs", context.input_dataset_builders, objects, is_change_of_table)
        declared = declared_inputs(run, objects)
        inputs = merged_inputs([*declared, *read], context)  # 3
        if inputs:
            add_input_statistics(inputs, [nodes for _, nodes in _executed(objects)])
            self._attach(
                inputs, self._facets(context.input_dataset_facet_builders, objects, "input"), own=True
            )  # 4
            self._attach(
                inputs, self._facets(context.dataset_facet_builders, objects, "dataset"), own=False
            )  # 5

        written = self._made(run, "outputs", context.output_dataset_builders, objects, is_change_of_table)
        outputs = merged_outputs(declared_outputs(run, objects) or written, context)  # 6
        self._columns.add(run, inputs, outputs, objects, until, errors, declared)
        if outputs:
            add_output_statistics(outputs, _executed(objects), run.stages)
            self._attach(
                outputs, self._facets(context.output_dataset_facet_builders, objects, "output"), own=True
            )  # 7
            self._attach(
                outputs, self._facets(context.dataset_facet_builders, objects, "dataset"), own=False
            )  # 8

        name = self._names.of(run, [*outputs, *inputs], rdds_of(objects))
        event = self._event(run, state, time, name)
        event["run"]["facets"].update(run_facets)
        event["job"]["facets"].update(job_facets)
        event["inputs"] = [_dataset(each, "input", self._settings) for each in inputs[:MOST_INPUTS]]
        event["outputs"] = [_dataset(each, "output", self._settings) for each in outputs[:MOST_INPUTS]]
        for side, found in (("inputs", inputs), ("outputs", outputs)):
            if len(found) > MOST_INPUTS:
                errors.append(ExtractionError(side, f"{len(found) - MOST_INPUTS} of {len(found)} left out"))
        errors += guard.errors
        self._drop_disabled(event)
        if "extractionError" not in self._settings.disabled_facets:
            add_extraction_errors(event, errors)
        return event

    def partial(self, run: Run, state: str, time: int) -> Event:
        """Names, parents and the run's own error; asks nobody."""
        event = self._event(run, state, time, self._names.of(run, (), ()))
        facets = event["run"]["facets"]
        ErrorMessage().accept(run, lambda key, facet: facets.__setitem__(key, facet))
        self._drop_disabled(event)
        return event

    def _event(self, run: Run, state: str, time: int, name: str) -> Event:
        facets: dict[str, Any] = {}
        parent = parent_facet(run, self._settings, lambda other: self._names.of(other, (), ()))
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
        made: dict[str, Any] = {}
        for builder in builders:
            for key, facet in self.context.ask(builder, _accepting(builder, objects, container)):
                made[key] = facet
        return made

    def _made(
        self, run: Run, side: str, builders: Sequence[Any], objects: Sequence[object], is_change: bool
    ) -> list[tuple[int, Any]]:
        """What every builder makes of every object, with the number of the execution it is about.

        Ours are remembered by execution; other people's may look at what has changed since."""
        known = run.cache.datasets
        found: list[tuple[int, Any]] = []
        context = self.context
        for builder in builders:
            for event in objects:
                number = event.id if isinstance(event, QueryExecution) else -1
                if number >= 0 and self.context.is_own(builder):
                    context.surroundings.database = event.database or "default"  # type: ignore[attr-defined]
                    key = (side, number, id(builder), context.is_end and is_change)
                    if key not in known and event.plan is not None:  # type: ignore[attr-defined]
                        known[key] = self.context.ask(builder, _applying(builder, event))
                    made = known.get(key, [])
                else:
                    made = self.context.ask(builder, _applying(builder, event))
                found += [(number, each) for each in made]
        return found

    def _attach(self, datasets: Iterable[DatasetBuilder], facets: dict[str, Any], *, own: bool) -> None:
        for dataset in datasets:
            target = dataset.own_facets if own else dataset.facets
            for key, facet in facets.items():
                target.setdefault(key, facet)  # what was made for this dataset alone is more exact

    def _drop_disabled(self, event: Event) -> None:
        off = self._settings.disabled_facets
        for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
            for kind in ("facets", "inputFacets", "outputFacets"):
                for key in off & (part.get(kind) or {}).keys():
                    del part[kind][key]


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
    own = dict(builder.own_facets)
    if builder.locations and "subset" not in own:
        own["subset"] = subset(builder.locations, role)
    return {
        "namespace": builder.namespace,
        "name": builder.name,
        "facets": {key: as_dict(facet, "dataset") for key, facet in builder.facets.items()},
        f"{role}Facets": {key: as_dict(facet, role) for key, facet in own.items()},
    }
