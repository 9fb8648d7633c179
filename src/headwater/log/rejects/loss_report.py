"""Counts and logs the rejects that limits and damage have taken (G3)."""

from __future__ import annotations

import logging
from typing import get_args

from headwater.clock import Clock
from headwater.log.recent_losses import RecentLosses
from headwater.log.rejects.totals import GATEWAY, LIMITS, Reason, Totals, is_acknowledged
from headwater.metrics import Metrics

logger = logging.getLogger(__name__)

LOG_AGAIN_SECONDS = 60.0  # a full store drops with each reject; one line in this time gives their number
TEXTS = {
    "bytes": "they exceeded log.retention_bytes. Replay or drop rejects in time, or raise it",
    "age": "they were older than log.retention_hours. Replay or drop rejects in time, or raise it",
    "damage": "their file was damaged, and is kept in damaged/, or it was removed",
}


class LossReport:
    """Brings the counters and the log up to the figures of the store, which a restart does not reset."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._counted: dict[tuple[str, str], int] = {}
        self._logged: dict[tuple[str, str], int] = {}
        self._losses = RecentLosses(clock)
        self._stages: set[str] = set()
        self._due = 0.0

    def begin(self, totals: Totals) -> None:
        """What was dropped before this process began is counted, and was logged then."""
        self.begin_stage(GATEWAY)
        self.count(totals)
        self._logged = dict(self._counted)

    def begin_stage(self, stage: str) -> None:
        """Report the counters of a stage from 0."""
        self._stages.add(stage)
        for reason in get_args(Reason):
            self._metrics.counter("rejects_dropped").begin(stage, reason)

    def count(self, totals: Totals) -> None:
        for stage in totals.stored.keys() - self._stages:
            self.begin_stage(stage)
        for key, gone in list(totals.dropped.items()):
            if (new := gone.events - self._counted.get(key, 0)) > 0:
                self._metrics.counter("rejects_dropped").add(new, gone.stage, gone.reason)
                self._counted[key] = gone.events
        for gone in totals.losses():
            self._losses.set(f"{gone.stage} by {gone.reason}", gone.events, gone.at)

    def trouble(self) -> str | None:
        """Which rejects of acknowledged events went lately, by stage and reason; None if none did."""
        texts = [f"{events} of {what}" for what, events in self._losses.recent().items()]
        if not texts:
            return None
        return f"acknowledged events were dropped: {', '.join(texts)}; see `headwater status`"

    def log(self, totals: Totals, *, last: bool = False) -> None:
        """Log what was dropped since the last line about it; the first at once, others once a minute."""
        new = {
            key: gone.events - self._logged.get(key, 0)
            for key, gone in list(totals.dropped.items())
            if gone.reason in LIMITS and gone.events > self._logged.get(key, 0)
        }
        now = self._clock.monotonic()
        if not new or (now < self._due and not last):
            return
        self._due = now + LOG_AGAIN_SECONDS
        for (stage, reason), events in new.items():
            self._logged[stage, reason] = totals.dropped[stage, reason].events
            if is_acknowledged(stage):
                text = "%d rejects of %s were dropped for good, though acknowledged once: %s."
                logger.error(text, events, stage, TEXTS[reason])
            else:
                text = "%d rejects of %s were dropped: %s."
                why = "they exceeded log.rejects_bytes" if reason == "bytes" else TEXTS[reason]
                logger.warning(text, events, stage, why)
