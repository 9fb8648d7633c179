"""The stages: what each of them has done, what waits before it, and what keeps it from moving."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from headwater.errors import HeadwaterError
from headwater.graph.query.query import GraphQuery
from headwater.log.files.event_counts import EventsStat, stat_events
from headwater.log.queue.log import Log
from headwater.log.queue.offline import LogStat, ReaderStat
from headwater.log.rejects.store import RejectStore
from headwater.page.lineage_graph.charts import Spark, spark
from headwater.page.views.rates import Pulse
from headwater.settings import Settings

__all__ = ["Overview", "Stage", "Stages"]

GRAPH_READER = "headwater:graph"
EVENTS_SECONDS = 2.0  # between two looks at the files of events, while anybody watches
SHARE = 20  # a look may cost a twentieth of the time: the archive can be large


class Kind(NamedTuple):
    """What is always the same of a stage. `follows`: it works on what comes from the one before it."""

    title: str
    words: str
    counter: str
    follows: bool = False


KINDS = {
    "gateway": Kind("Gateway", "events come in", "gateway_events_accepted"),
    "log": Kind("Log", "lineage is kept", "log_events_appended", follows=True),
    "delivery": Kind("Outlets", "it is sent on", "delivery_events_delivered", follows=True),
    "graph": Kind("Graph", "it is folded", "graph_events_ingested"),
    "pipeline": Kind("Pipeline", "events become rows", "incoming_events_appended"),
}


class Stage(NamedTuple):
    """One step of the way, in short; `facts` are pairs of a number and what it counts."""

    id: str
    kind: Kind
    rate: float
    spark: Spark
    facts: list[tuple[float, str]]
    trouble: str


class Outlet(NamedTuple):
    """A reader of the log that sends on: appended = delivered + rejected + dropped + waiting (G3)."""

    reader: ReaderStat
    type: str
    rate: float
    spark: Spark
    dropped: int
    trouble: str


class Overview(NamedTuple):
    """All stages at one moment."""

    at: float
    stages: list[Stage]
    troubles: list[str]
    outlets: list[Outlet]
    others: list[ReaderStat]
    log: LogStat
    events: EventsStat | None
    destinations: dict[str, str]
    rejects: dict[str, int]


class Stages:
    """Gathers an overview; called by any thread."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        rejects: RejectStore,
        pulse: Pulse,
        *,
        health: Callable[[], list[str]] = list,
    ) -> None:
        self._settings = settings
        self._log = log
        self._rejects = rejects
        self._pulse = pulse
        self._health = health
        self._guard = threading.Lock()
        self._events: EventsStat | None = None
        self._events_due = 0.0

    def open_rejects(self) -> int:
        """How many rejects wait for somebody."""
        events = self.events()
        failed = sum(each.open_rejects for each in events.destinations) if events else 0
        return sum(self._rejects.counts().values()) + failed

    def events(self) -> EventsStat | None:
        """What is in the files of events, as it was a moment ago."""
        if not self._settings.events_dir.exists():
            return None
        with self._guard:
            began = time.monotonic()
            if began >= self._events_due:
                self._events = stat_events(self._settings.events_dir, time.time())
                now = time.monotonic()
                self._events_due = now + max(EVENTS_SECONDS, SHARE * (now - began))
            return self._events

    def overview(self, query: GraphQuery) -> Overview:
        """Everything that the first view shows."""
        stat, events = self._log.stat(), self.events()
        troubles = self._health()
        outlets = self._outlets(stat, troubles)
        stages = [self._gateway(troubles), self._kept(stat)]
        if outlets:
            stages.append(self._delivery(outlets))
        stages.append(self._graph(query, troubles))
        if events is not None and (self._settings.destinations or events.destinations or events.streams):
            stages.append(self._pipeline(events))
        rejects = self._rejects.counts()
        for destination in events.destinations if events else ():
            if destination.open_rejects:
                rejects[f"destination:{destination.id}"] = destination.open_rejects
        return Overview(
            time.time(),
            stages,
            troubles,
            outlets,
            [reader for reader in stat.readers if reader.name not in {each.reader.name for each in outlets}],
            stat,
            events,
            {each.id: each.type for each in self._settings.destinations},
            rejects,
        )

    def _stage(self, id: str, facts: list[tuple[float, str]], trouble: str = "") -> Stage:
        kind = KINDS[id]
        moved = spark(self._pulse.recent(kind.counter))
        return Stage(id, kind, self._pulse.rate(kind.counter), moved, facts, trouble)

    def _gateway(self, troubles: list[str]) -> Stage:
        total = self._pulse.total
        facts = [
            (total("gateway_events_accepted"), "acknowledged"),
            (total("gateway_events_refused"), "refused"),
        ]
        trouble = next((text for text in troubles if text.startswith("events:")), "")
        return self._stage("gateway", facts, trouble)

    def _kept(self, stat: LogStat) -> Stage:
        waiting = max((reader.lag_events for reader in stat.readers), default=0)
        facts: list[tuple[float, str]] = [(stat.end - 1, "lineage events"), (waiting, "waiting")]
        trouble = "" if self._log.healthy else "the last commit failed"
        return self._stage("log", facts, trouble)

    def _outlets(self, stat: LogStat, troubles: list[str]) -> list[Outlet]:
        types = {outlet.name: outlet.type for outlet in self._settings.outlets}
        found = []
        for reader in stat.readers:
            if reader.name in types:
                prefix, counter = f"outlet {reader.name}: ", f"delivery_events_delivered:{reader.name}"
                found.append(
                    Outlet(
                        reader,
                        types[reader.name],
                        self._pulse.rate(counter),
                        spark(self._pulse.recent(counter), 96, 20),
                        reader.dropped_age + reader.dropped_bytes + reader.dropped_damage,
                        next((text.removeprefix(prefix) for text in troubles if text.startswith(prefix)), ""),
                    )
                )
        return found

    def _delivery(self, outlets: list[Outlet]) -> Stage:
        facts: list[tuple[float, str]] = [
            (sum(each.reader.delivered for each in outlets), "delivered"),
            (sum(each.reader.lag_events for each in outlets), "waiting"),
        ]
        failing = [each.reader.name for each in outlets if each.trouble]
        trouble = f"{', '.join(failing)} waiting to retry" if failing else ""
        return self._stage("delivery", facts, trouble)

    def _pipeline(self, events: EventsStat) -> Stage:
        rows = sum(each.rows for each in events.destinations) + sum(each.rows for each in events.streams)
        waiting = sum(each.waiting_files for each in events.tokens) + events.replays
        facts: list[tuple[float, str]] = [(rows, "rows"), (waiting, "files waiting")]
        errors = [pair.error for pair in events.open] or [each.error for each in events.streams if each.error]
        if not errors and events.last_cycle is not None:
            errors = events.last_cycle.errors
        return self._stage("pipeline", facts, errors[0] if errors else "")

    def _graph(self, query: GraphQuery, troubles: list[str]) -> Stage:
        try:
            summary = query.summary()
            facts: list[tuple[float, str]] = [(summary.datasets, "datasets"), (summary.runs, "runs")]
            facts += [(summary.failed, "jobs failing")] if summary.failed else []
            unread = ""
        except HeadwaterError as error:
            facts, unread = [], error.text
        trouble = next((text for text in troubles if text.startswith("graph:")), unread)
        return self._stage("graph", facts, trouble)
