"""The choice of the runs whose events are sent.

Applications, streams and micro-batches are always sent, and so is every run that fails. A query or an RDD
job is sent if it reads or writes a dataset: `SET x=1`, `SHOW TABLES` and `spark.range(9).count()` have no
dataset. Settings can exclude more. The START of a run is sent before its end, always.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from headwater.lineage.events.size_limit import add_extraction_errors
from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.facets.make import as_dict
from headwater.lineage.runs import DueEvent, ExtractionError, Run, RunKind, SendState, State
from headwater.lineage.settings import LineageSettings

logger = logging.getLogger(__name__)

Event = dict[str, Any]

# Roots of plans for which openlineage-spark sends no event.
_NOT_UPSTREAM = {
    "Project",
    "Aggregate",
    "Repartition",
    "LocalRelation",
    "ShowTables",
    "CreateNamespace",
    "SetCatalogAndNamespace",
    "CreateDatabaseCommand",
    "RefreshTableCommand",
}
_ALWAYS = {RunKind.APPLICATION, RunKind.STREAM, RunKind.BATCH}


class EventFilter:
    """Decides for each run; holds its START back until an event of the run has datasets or fails."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._denied = {name.rpartition(".")[2] for name in settings.denied_nodes}
        self._allowed = {name.rpartition(".")[2] for name in settings.allowed_nodes}

    def wants(self, run: Run) -> bool:
        """Whether an event of the run is worth building."""
        if run.send_state is SendState.UNDECIDED and self._is_denied(run):
            run.send_state = SendState.SKIPPED
        return run.send_state is not SendState.SKIPPED

    def accept(self, due: DueEvent, event: Event) -> list[tuple[Event, int]]:
        """The events to send now, with their times: none, this one, or its run's START and this one."""
        run = due.run
        if run.send_state is SendState.SENT:
            return [(event, due.time)]
        if self._is_relevant(run, due.state, event):
            run.send_state = SendState.SENT
            held, run.held_start = run.held_start, None
            return [*([(held, run.started)] if held is not None else []), (event, due.time)]
        if due.state is State.START:
            run.held_start = event
        return []

    def _is_denied(self, run: Run) -> bool:
        if run.kind is RunKind.RDD_JOB:
            return self._settings.rdd_events_disabled
        root = self._root_node(run) if run.kind is RunKind.SQL else None
        return root in self._denied and root not in self._allowed

    def _is_relevant(self, run: Run, state: State, event: Event) -> bool:
        if run.kind in _ALWAYS or state is State.FAIL or state is State.ABORT:
            return True
        if event.get("outputs"):
            return True
        if run.cache.has_unknown or (run.execution is not None and run.execution.plan_error):
            return True  # its datasets are unknown, which the event must report (G11)
        if not event.get("inputs"):
            return False
        if run.kind is RunKind.SQL and self._settings.reads != "all":
            root = self._root_node(run)
            if root in self._allowed:
                return True
            return self._settings.reads == "upstream" and root not in _NOT_UPSTREAM
        return True

    def _root_node(self, run: Run) -> str | None:
        """Class of the root of the analyzed plan, without its package."""
        try:
            plan = run.execution.plan if run.execution is not None else None
            return plan.nodes[plan.root].simple if plan is not None else None
        except Exception as error:
            logger.debug("The plan of %r cannot be read: %s", run, error)
            return None


def add_registered_facets(event: Event, moment: int, disabled: Collection[str]) -> None:
    """Add the facets that the program has registered up to this time (milliseconds) to an event."""
    for kind, registered in zip(("run", "job"), FacetRegistry.take(moment), strict=True):
        for key, facet in registered.items():
            if key in disabled:
                continue
            try:
                event[kind].setdefault("facets", {})[key] = as_dict(facet, kind)
            except Exception as error:
                failed = ExtractionError(f"facet {key}", f"{type(error).__name__}: {error}")
                add_extraction_errors(event, [failed])
