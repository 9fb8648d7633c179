"""The view of the system: each stage with its rate, its pending events and its error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from headwater.errors import HeadwaterError
from headwater.graph.query.answers import Summary
from headwater.graph.query.query import GraphQuery
from headwater.log.files.awaited import Awaited, awaited
from headwater.log.files.event_counts import EventsStat, stat_events
from headwater.log.queue.log import Log
from headwater.log.queue.offline import LogStat, ReaderStat
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.log.rejects.store import RejectStore
from headwater.page.views.rates import Rates
from headwater.page.views.view import View
from headwater.settings import Settings

T = TypeVar("T")

ROWS_LOADED = "pipeline_rows_loaded"
EVENTS_SECONDS = 2.0  # between two counts of the files of events
SHARE = 20  # a count may take a twentieth of the time: the archive can be large


class Sparkline(NamedTuple):
    """A sparkline: a line and the area below it."""

    line: str
    area: str
    width: int
    height: int


def sparkline(values: Sequence[float], width: int = 160, height: int = 36) -> Sparkline:
    """A sparkline with the latest value at the right, scaled from zero to the highest value."""
    if len(values) < 2:
        values = [0.0, 0.0]
    most = max(*values, 1e-9)
    step = width / (len(values) - 1)
    points = [
        (round(i * step, 1), round(height - 2 - (height - 4) * v / most, 1)) for i, v in enumerate(values)
    ]
    line = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return Sparkline(line, f"{line}L{width} {height}L0 {height}Z", width, height)


class Kind(NamedTuple):
    """The constants of a stage. `has_arrow_before`: it reads the events that the stage before it wrote."""

    title: str
    caption: str
    counter: str
    has_arrow_before: bool = False
    unit: str = "events/s"


KINDS = {
    "gateway": Kind("Gateway", "receives events", "gateway_events_accepted"),
    "log": Kind("Log", "stores lineage", "log_events_appended", has_arrow_before=True),
    "delivery": Kind("Outlets", "forward lineage", "delivery_events_delivered", has_arrow_before=True),
    "graph": Kind("Graph", "ingests lineage", "graph_events_ingested"),
    "pipeline": Kind("Pipeline", "loads events into tables", ROWS_LOADED, unit="rows/s"),
}


class Stage(NamedTuple):
    """One stage; `facts` are pairs of a number and its label."""

    id: str
    kind: Kind
    rate: float
    sparkline: Sparkline
    facts: list[tuple[float, str]]
    error: str


class Outlet(NamedTuple):
    """An outlet and its reader of the log: appended = delivered + rejected + dropped + waiting (G3)."""

    reader: ReaderStat
    type: str
    rate: float
    sparkline: Sparkline
    dropped: int
    error: str


class Status(NamedTuple):
    """All stages at one moment."""

    at: float
    stages: list[Stage]
    errors: list[str]
    outlets: list[Outlet]
    other_readers: list[ReaderStat]
    log: LogStat
    events: EventsStat | None
    destinations: dict[str, str]
    rejects: dict[str, int]
    awaited: Awaited | None


class SystemStatus:
    """Reads the status of all stages; thread-safe."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        rejects: RejectStore,
        rates: Rates,
        *,
        files: DestinationRejects | None = None,
        health: Callable[[], list[str]] = list,
    ) -> None:
        self.settings = settings
        self._log = log
        self._rejects = rejects
        self._rates = rates
        self._health = health
        self._lock = threading.Lock()
        self._events: EventsStat | None = None
        self._events_due = 0.0
        self._files = files or DestinationRejects(settings.events_dir)
        self._cache: dict[str, tuple[float, Any]] = {}
        rates.watch(ROWS_LOADED, self._rows_loaded)

    def _rows_loaded(self) -> float:
        events = self.events()
        return float(rows_loaded(events)) if events is not None else 0.0

    def summary(self, query: GraphQuery) -> Summary:
        """The counts of the graph; those of a large graph are some seconds old."""
        return self.cached("summary", query.summary)

    def cached(self, name: str, read: Callable[[], T]) -> T:
        """What `read` returns, or returned before: reading takes at most a twentieth of the time."""
        with self._lock:
            until, known = self._cache.get(name, (0.0, None))
        if known is not None and time.monotonic() < until:
            return cast(T, known)
        began = time.monotonic()
        found = read()
        now = time.monotonic()
        with self._lock:
            self._cache[name] = now + SHARE * (now - began), found
        return found

    def received(self) -> float:
        """How many events this server has acknowledged since its start."""
        return self._rates.total("gateway_events_accepted")

    def open_rejects(self) -> dict[str, int]:
        """How many rejects are stored, by stage."""
        events = self.events()
        return self._rejects.counts() | {
            f"destination:{destination.id}": destination.open_rejects
            for destination in (events.destinations if events else ())
            if destination.open_rejects
        }

    def events(self) -> EventsStat | None:
        """The counts of the files of events, cached for some seconds."""
        if not self.settings.events_dir.exists():
            return None
        with self._lock:
            began = time.monotonic()
            if began >= self._events_due:
                self._events = stat_events(self.settings.events_dir, time.time(), self._files)
                now = time.monotonic()
                self._events_due = now + max(EVENTS_SECONDS, SHARE * (now - began))
            return self._events

    def read(self, query: GraphQuery) -> Status:
        """The status of all stages."""
        stat, events = self._log.stat(), self.events()
        errors = self._health()
        outlets = self._outlets(stat, errors)
        stages = [self._gateway(errors), self._log_stage(stat)]
        if outlets:
            stages.append(self._delivery(outlets))
        stages.append(self._graph(query, errors))
        if events is not None and (self.settings.destinations or events.destinations or events.streams):
            stages.append(self._pipeline(events))
        return Status(
            time.time(),
            stages,
            errors,
            outlets,
            [
                reader
                for reader in stat.readers
                if reader.name not in {outlet.reader.name for outlet in outlets}
            ],
            stat,
            events,
            {destination.id: destination.type for destination in self.settings.destinations},
            self.open_rejects(),
            awaited(self.settings, events) if events is not None else None,
        )

    def _stage(self, id: str, facts: list[tuple[float, str]], error: str = "") -> Stage:
        kind = KINDS[id]
        line = sparkline(self._rates.history(kind.counter))
        return Stage(id, kind, self._rates.rate(kind.counter), line, facts, error)

    def _gateway(self, errors: list[str]) -> Stage:
        total = self._rates.total
        facts = [
            (total("gateway_events_accepted"), "acknowledged"),
            (total("gateway_events_refused"), "refused"),
        ]
        error = next((text for text in errors if text.startswith("events:")), "")
        return self._stage("gateway", facts, error)

    def _log_stage(self, stat: LogStat) -> Stage:
        waiting = max((reader.lag_events for reader in stat.readers), default=0)
        facts: list[tuple[float, str]] = [(stat.end - 1, "lineage events"), (waiting, "waiting")]
        error = "" if self._log.healthy else "the last commit failed"
        return self._stage("log", facts, error)

    def _outlets(self, stat: LogStat, errors: list[str]) -> list[Outlet]:
        types = {outlet.name: outlet.type for outlet in self.settings.outlets}
        found = []
        for reader in stat.readers:
            if reader.name in types:
                prefix, counter = f"outlet {reader.name}: ", f"delivery_events_delivered:{reader.name}"
                found.append(
                    Outlet(
                        reader,
                        types[reader.name],
                        self._rates.rate(counter),
                        sparkline(self._rates.history(counter), 96, 20),
                        reader.dropped_age + reader.dropped_bytes + reader.dropped_damage,
                        next((text.removeprefix(prefix) for text in errors if text.startswith(prefix)), ""),
                    )
                )
        return found

    def _delivery(self, outlets: list[Outlet]) -> Stage:
        facts: list[tuple[float, str]] = [
            (sum(outlet.reader.delivered for outlet in outlets), "delivered"),
            (sum(outlet.reader.lag_events for outlet in outlets), "waiting"),
        ]
        failing = [outlet.reader.name for outlet in outlets if outlet.error]
        error = f"{', '.join(failing)} waiting to retry" if failing else ""
        return self._stage("delivery", facts, error)

    def _pipeline(self, events: EventsStat) -> Stage:
        waiting = sum(each.waiting_files for each in events.tokens) + events.replays
        facts: list[tuple[float, str]] = [(rows_loaded(events), "rows"), (waiting, "files waiting")]
        errors = [pair.error for pair in events.open] or [each.error for each in events.streams if each.error]
        if not errors and events.last_cycle is not None:
            errors = events.last_cycle.errors
        return self._stage("pipeline", facts, errors[0] if errors else "")

    def _graph(self, query: GraphQuery, errors: list[str]) -> Stage:
        try:
            summary = self.summary(query)
            facts: list[tuple[float, str]] = [(summary.datasets, "datasets"), (summary.runs, "runs")]
            facts += [(summary.failed, "jobs failing")] if summary.failed else []
            failure = ""
        except HeadwaterError as error:
            facts, failure = [], error.text
        stalled = next((text for text in errors if text.startswith("graph:")), failure)
        return self._stage("graph", facts, stalled)


def rows_loaded(events: EventsStat) -> int:
    """The rows that batch and stream mode have loaded."""
    return sum(destination.rows for destination in events.destinations) + sum(
        stream.rows for stream in events.streams
    )


def system_view(status: SystemStatus, query: GraphQuery) -> View:
    """All stages, outlets, destinations, sources and readers."""
    return View("system.html", "System", "system", {"status": status.read(query)})
