"""What the server knows of the pipeline, read from its files every few seconds: metrics, and /readyz.

The pipeline is another process, which may be dead; its files are what an alarm can rely on.
"""

from __future__ import annotations

import logging
import platform
import shutil
import threading
from collections.abc import Callable
from functools import partial

from headwater import __version__
from headwater.cli.output import format_seconds
from headwater.clock import Clock, SystemClock
from headwater.formats.printable import printable_line
from headwater.log.files.event_counts import EventsStat, stat_events
from headwater.log.files.layout import EventFolder
from headwater.log.orphans import orphans
from headwater.log.recent_losses import RecentLosses
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.log.rejects.loss_report import LossReport
from headwater.log.rejects.store import RejectStore
from headwater.log.rejects.totals import DESTINATION_PREFIX, Totals
from headwater.metrics import Metrics
from headwater.settings import Settings

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
DEAD_SECONDS = 120.0  # that a stream with waiting events may be without a process: a restart takes less
LATE_SECONDS = 900.0  # that an event file may wait; or three times `events.rotation_minutes`, if longer
FULL = 0.9  # of a limit of rejects


class PipelineWatch:
    """Sets the gauges, and knows why what waits for the pipeline does not move."""

    def __init__(
        self,
        settings: Settings,
        rejects: RejectStore,
        metrics: Metrics,
        *,
        clock: Clock | None = None,
        files: DestinationRejects | None = None,
        witnessed_now: Callable[[], float] | None = None,
    ) -> None:
        """`witnessed_now` is the time by which rejects of destinations age."""
        self._settings, self._rejects, self._metrics = settings, rejects, metrics
        self._clock = clock or SystemClock()
        self._witnessed_now = witnessed_now or self._clock.now
        self._files = files or DestinationRejects(settings.events_dir)
        self._report = LossReport(metrics, self._clock)
        for destination in settings.destinations:
            self._report.begin_stage(DESTINATION_PREFIX + destination.id)
        self._report.begin(self._dropped())
        self._missing = RecentLosses(self._clock)
        self._reasons: list[str] = []
        self._full: list[str] = []
        self._idle_since: dict[str, float] = {}
        self._waiting_since: dict[str, float] | None = None  # complete files, by the steady clock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-watch", daemon=True)
        metrics.gauge("build_info").set(1, __version__, platform.python_version())
        metrics.gauge("disk_free_bytes").set(lambda: shutil.disk_usage(settings.data_dir).free)
        limits = settings.log
        for kind, limit in (("gateway", limits.rejects_bytes), ("outlets", limits.retention_bytes)):
            metrics.gauge("rejects_full_ratio").set(partial(self._full_ratio, kind, limit), kind)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def reasons(self) -> list[str]:
        """Why events that wait for the pipeline do not move, as of the last look."""
        return self._full + self._reasons

    def look(self) -> None:
        """Read the files, set the gauges, and find the reasons."""
        self._count_rejects()
        limits = self._settings.log
        ratios = {"outlets": self._full_ratio("outlets", limits.retention_bytes)}
        lost: list[str] = []
        if has_events := self._settings.events_dir.is_dir():
            lost = self._limit_rejects()
            ratios |= {id: self._files.bytes(id) / limits.retention_bytes for id in self._files.ids}
            for id in ratios.keys() - {"outlets"}:
                self._metrics.gauge("rejects_full_ratio").set(ratios[id], f"{DESTINATION_PREFIX}{id}")
        self._full = lost + [
            f"rejects: those of {of} fill {ratio:.0%} of their limit; the oldest go at 100%"
            for of, ratio in ratios.items()
            if ratio >= FULL
        ]
        if not has_events:
            return
        found = stat_events(self._settings.events_dir, self._clock.now(), self._files)
        found.oldest_seconds = self._oldest_seconds()
        self._set_gauges(found)
        waiting = orphans(self._settings)
        gauge = self._metrics.gauge("orphaned_events")
        files = self._metrics.gauge("orphaned_files")
        for labels in set(gauge.values) | set(files.values):
            gauge.set(0, *labels)
            files.set(0, *labels)
        for orphan in waiting:
            gauge.set(orphan.events, orphan.destination)
            files.set(orphan.files, orphan.destination)
        self._reasons = [str(orphan) for orphan in waiting] + self._stuck(found)

    def _oldest_seconds(self) -> float:
        """For how long the oldest complete file waits; by the wall clock only until the first look."""
        now, wall = self._clock.monotonic(), self._clock.now()
        known, is_first = self._waiting_since or {}, self._waiting_since is None
        self._waiting_since = {}
        for file in EventFolder(self._settings.events_dir).rotated_files():
            age = max(0.0, wall - file.rotated_at.timestamp()) if is_first else 0.0
            self._waiting_since[file.name] = known.get(file.name, now - age)
        return now - min(self._waiting_since.values(), default=now)

    def _full_ratio(self, kind: str, limit: int) -> float:
        return self._rejects.known_totals.bytes(acknowledged=kind == "outlets") / limit

    def _limit_rejects(self) -> list[str]:
        """Apply the log's limits to the rejects of destinations; which of them are lost, for an hour."""
        limits = self._settings.log
        self._files.apply_limits(
            most_bytes=limits.retention_bytes,
            age_seconds=limits.retention_hours * 3600,
            now=self._witnessed_now(),
        )
        totals = self._dropped()
        self._report.count(totals)
        self._report.log(totals)
        trouble = self._report.trouble()
        return [trouble] if trouble else []

    def _dropped(self) -> Totals:
        totals = Totals()
        totals.dropped = {(gone.stage, gone.reason): gone for gone in self._files.dropped()}
        return totals

    def _count_rejects(self) -> None:
        gauge = self._metrics.gauge("rejects_by_stage")
        counts = self._rejects.counts()
        for (stage,) in gauge.values:
            if stage not in counts and not stage.startswith("destination:"):
                gauge.set(0, stage)
        for stage, count in counts.items():
            gauge.set(count, stage)

    def _set_gauges(self, found: EventsStat) -> None:
        gauge = self._metrics.gauge
        gauge("incoming_oldest_seconds").set(found.oldest_seconds)
        gauge("events_damaged_files").set(len(found.damaged))
        if (cycle := found.last_cycle) is not None:
            gauge("pipeline_last_cycle_timestamp_seconds").set(cycle.at)
            gauge("pipeline_last_cycle_seconds").set(cycle.seconds)
            gauge("pipeline_last_cycle_errors").set(len(cycle.errors))
        stages = {f"destination:{each.id}" for each in found.destinations}
        for (stage,) in gauge("rejects_by_stage").values:
            if stage.startswith("destination:") and stage not in stages:
                gauge("rejects_by_stage").set(0, stage)
        rows: dict[str, int] = {}
        for each in found.destinations:
            rows[each.id] = rows.get(each.id, 0) + each.rows
            gauge("rejects_by_stage").set(each.open_rejects, f"destination:{each.id}")
        for stream in found.streams:
            id = stream.id.partition(" ")[0]
            rows[id] = rows.get(id, 0) + stream.rows
            gauge("stream_running").set(stream.running, stream.id)
            gauge("stream_waiting_events").set(stream.waiting, stream.id)
            gauge("stream_failing").set(bool(stream.error), stream.id)
            gauge("stream_missing_events").set(stream.missing, stream.id)
        for id, count in rows.items():
            gauge("destination_rows").set(count, id)

    def _stuck(self, found: EventsStat) -> list[str]:
        reasons = [
            f"stream {stream.id}: {printable_line(stream.error)}" for stream in found.streams if stream.error
        ]
        now = self._clock.monotonic()
        for stream in found.streams:
            self._missing.set(stream.id, stream.missing, stream.missing_at)
        reasons += [
            f"stream {id}: {events} event(s) were missing from its queue; see `headwater status`"
            for id, events in self._missing.recent().items()
        ]
        idle = {stream.id for stream in found.streams if stream.waiting and not stream.running}
        self._idle_since = {id: self._idle_since.get(id, now) for id in idle}
        reasons += [
            f"stream {id}: events wait, and no `headwater pipeline stream` runs"
            for id, since in self._idle_since.items()
            if now - since >= DEAD_SECONDS
        ]
        late = max(LATE_SECONDS, 180 * self._settings.events.rotation_minutes)
        if self._settings.destinations and found.oldest_seconds > late:
            text = f"pipeline: the oldest event file has waited for {format_seconds(found.oldest_seconds)}"
            errors = found.last_cycle.errors if found.last_cycle is not None else []
            reasons.append(f"{text}: {printable_line(errors[0])}" if errors else text)
        reasons += [f"damaged: {each.file}: {each.damage}" for each in found.damaged[:1]]
        return reasons

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                logger.exception("The files of the pipeline could not be read; trying again.")
            if self._closing.wait(LOOK_SECONDS):
                return
