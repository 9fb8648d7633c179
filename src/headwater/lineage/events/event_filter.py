"""Which runs are worth an event, and the way of an event from a step of a run to the queue of the transport.

An application, a stream and a micro-batch are always told; so is whatever failed. A query or a job is told if
it reads or writes a dataset: `SET x=1`, `SHOW TABLES` or `spark.range(9).count()` say nothing about data.
Settings can leave out more. A run that is told has its START told first, always. Facets that user code has
registered go out with the first event that is really sent, so it is here that they are put in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from headwater.lineage.events.deadline import DeadlineBuilder
from headwater.lineage.events.size_limit import add_errors
from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.facets.make import as_dict
from headwater.lineage.runs import ExtractionError, Kind, Run, State, Step
from headwater.lineage.settings import LineageSettings

__all__ = ["Teller"]

logger = logging.getLogger(__name__)

Event = dict[str, Any]

# Roots of plans that openlineage-spark tells nothing about.
_UPSTREAM = {
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
_ALWAYS = {Kind.APPLICATION, Kind.STREAM, Kind.BATCH}


class Teller:
    """Builds the event of each step and sends it on; holds a START back until its run turns out to matter."""

    def __init__(
        self, builder: DeadlineBuilder, emit: Callable[[Event], None], settings: LineageSettings
    ) -> None:
        self._builder = builder
        self._emit = emit
        self._settings = settings
        self._denied = {name.rpartition(".")[2] for name in settings.denied_nodes}
        self._allowed = {name.rpartition(".")[2] for name in settings.allowed_nodes}

    def tell(self, step: Step) -> None:
        """Build and send, or hold back, or leave out; never raises."""
        try:
            self._tell(step)
        except Exception:
            logger.exception("No lineage for %r", step.run)

    def _tell(self, step: Step) -> None:
        run, state = step.run, step.state
        if run.memo.get("told") is False or self._is_denied(run):
            run.memo["told"] = False
            return
        event = self._builder.build(run, state, step.time)
        if event is None:
            return
        if run.memo.get("told"):
            self._send(event, step.time)
        elif self._is_worth(run, state, event):
            run.memo["told"] = True
            if (held := run.memo.pop("held", None)) is not None:
                self._send(held, run.started)  # type: ignore[arg-type]
            self._send(event, step.time)
        elif state is State.START:
            run.memo["held"] = event

    def _send(self, event: Event, time: int) -> None:
        for kind, registered in zip(("run", "job"), FacetRegistry.take(time), strict=True):
            for key, facet in registered.items():
                if key in self._settings.disabled_facets:
                    continue
                try:
                    event[kind].setdefault("facets", {})[key] = as_dict(facet, kind)
                except Exception as error:
                    add_errors(event, [ExtractionError(f"facet {key}", f"{type(error).__name__}: {error}")])
        self._emit(event)

    def _is_denied(self, run: Run) -> bool:
        if run.kind is Kind.RDD_JOB:
            return self._settings.rdd_events_disabled
        root = self._root_node(run) if run.kind is Kind.SQL else None
        return root in self._denied and root not in self._allowed

    def _is_worth(self, run: Run, state: State, event: Event) -> bool:
        if run.kind in _ALWAYS or state is State.FAIL or state is State.ABORT:
            return True
        if event.get("outputs"):
            return True
        if run.execution is not None and run.execution.plan_error:
            return True  # what it reads and writes is not known, which must be told (G11)
        if not event.get("inputs"):
            return False
        if run.kind is Kind.SQL and self._settings.reads != "all":
            root = self._root_node(run)
            if root in self._allowed:
                return True
            return self._settings.reads == "upstream" and root not in _UPSTREAM
        return True

    def _root_node(self, run: Run) -> str | None:
        """Class of the root of the analyzed plan, without its package."""
        try:
            plan = run.execution.plan if run.execution is not None else None
            return plan.nodes[plan.root].simple if plan is not None else None
        except Exception as error:
            logger.debug("The plan of %r cannot be read: %s", run, error)
            return None
