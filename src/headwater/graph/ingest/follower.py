"""Follows the log with a cursor and ingests each event into the graph once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.graph.store.database import IngestResult
from headwater.log.leap_safe_clock import LeapSafeClock
from headwater.log.queue import offline
from headwater.log.queue.log import Log
from headwater.log.queue.reader import Reader
from headwater.metrics import Metrics

logger = logging.getLogger(__name__)

READER = "headwater:graph"  # its cursor in the log; the name of an outlet cannot have a colon
BATCH_BYTES = 8 * 1024 * 1024
PAUSE_SECONDS = 0.2  # between batches of a trickle, so that one commit takes several events
RETRY_SECONDS = 5.0
CLEANUP_SECONDS = 600.0
CLEANUP_EVENTS = 200_000
CLOCK = "clock"  # a file in the graph's folder


class GraphWriter(Protocol):
    """A graph that takes batches of events: a GraphDatabase, or the process of one."""

    @property
    def folder(self) -> Path: ...

    @property
    def retention_days(self) -> float: ...

    @property
    def position(self) -> int: ...

    @property
    def last_received_at(self) -> float: ...

    def ingest_received(
        self, events: Iterable[tuple[float, bytes]], position: int | None = None
    ) -> IngestResult: ...

    def clean_up(self, now: float) -> int: ...

    def close(self) -> None: ...


class LogFollower:
    """Ingests the log into the graph in a thread. It delays no other part: the log keeps the events (G7).

    Each event is ingested exactly once, because its position is committed with the batch. The log's cursor
    follows; it only says which events the log may drop. If the graph is new or was damaged, all events that
    the log still holds are ingested again.
    """

    def __init__(
        self,
        log: Log,
        database: GraphWriter,
        metrics: Metrics,
        *,
        batch_events: int = 1_000,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._log = log
        self._database = database
        self._batch_events = batch_events
        self._pause_seconds = pause_seconds
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._stalled_reason = ""
        self._events_since_cleanup = 0
        self._cleaned_up_at = 0.0
        # Its own, not the log's: a leap is believed after the age limit, and the graph's is longer.
        self._witnessed = LeapSafeClock(
            database.folder / CLOCK,
            limit_seconds=database.retention_days * 86_400,
            gap_seconds=2 * CLEANUP_SECONDS,
            clock=log.clock,
            newest=database.last_received_at,
        )
        self._ingested = metrics.counter("graph_events_ingested")
        self._invalid = metrics.counter("graph_events_invalid")
        # the old names of these counters, for one release
        self._folded = metrics.counter("graph_events_folded")
        self._unreadable = metrics.counter("graph_events_unreadable")
        self._mistimed = metrics.counter("graph_events_mistimed")
        self._left_out = metrics.counter("graph_parts_left_out")
        self._position = self._committed = database.position
        self._reader = self._open_reader()
        metrics.gauge("graph_lag_events").set(lambda: self.lag_events)
        self._unlisten = log.on_append(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="graph", daemon=True)

    def _open_reader(self) -> Reader:
        reader = self._log.reader(READER)
        if self._position > self._log.end or self._is_of_other_events():
            logger.warning("The graph is of another log, or of a later copy of it: this one is ingested.")
            self._position = 0
        if self._position < reader.position:
            # The graph is new, or an older copy: begin with the oldest event that the log holds.
            self._log.forget(READER)
            reader = self._log.reader(READER)
        elif self._position > reader.position:
            # Killed after the graph's commit and before the log's: without this the log would keep these
            # events, and all that follow, without limit.
            reader.finish(range(reader.position, self._position))
        self._position = max(self._position, reader.position)
        return reader

    def _is_of_other_events(self) -> bool:
        """Whether the log has another event where the graph's last one was: it was restored from a copy."""
        if not (ingested_at := self._database.last_received_at):
            return False
        found = next(offline.commits(self._log.folder, self._position - 1, self._position), None)
        return found is not None and found.received_at != ingested_at

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stalled_reason(self) -> str:
        """Why no events are ingested, for /readyz; empty when all is well."""
        return self._stalled_reason

    @property
    def lag_events(self) -> int:
        """Events in the log that are not in the graph yet."""
        return max(0, self._log.end - self._position)

    def close(self, timeout_seconds: float = 20.0) -> None:
        """Finish the current batch and stop; pending events are ingested after the next start."""
        self._stop.set()
        self._wake.set()
        self._unlisten()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._save_clock(now=True)
            self._reader.close()
            self._database.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._ingest_next_batch():
                    self._stalled_reason = ""
                else:
                    self._wake.wait(RETRY_SECONDS)
                    self._wake.clear()
                    self._stop.wait(self._pause_seconds)
            except HeadwaterError as error:
                self._stall(error.text)
            except Exception as error:
                logger.exception("Ingesting lineage failed.")
                self._stall(f"{type(error).__name__}: {error}")

    def _stall(self, reason: str) -> None:
        if reason != self._stalled_reason:
            logger.error("The graph is stalled: %s", reason)
        self._stalled_reason = reason
        self._stop.wait(RETRY_SECONDS)

    def _ingest_next_batch(self) -> bool:
        """Ingest the next batch; False when there is none."""
        if (position := self._database.position) < self._committed:
            # Its process was started again, and found the graph damaged: ingest all that the log still holds.
            self._reader.close()
            self._position = self._committed = position
            self._reader = self._open_reader()
        self._clean_up()
        events = self._reader.take(self._position, self._batch_events, BATCH_BYTES)
        if not events:
            self._position = max(self._position, self._reader.position)
            return False
        end = events[-1].position + 1
        result = self._database.ingest_received(((event.received_at, event.body) for event in events), end)
        self._reader.finish(event.position for event in events)
        self._position = self._committed = end
        self._events_since_cleanup += result.events
        for valid in (self._ingested, self._folded):
            valid.add(result.events - result.invalid)
        for invalid in (self._invalid, self._unreadable):
            invalid.add(result.invalid)
        self._mistimed.add(result.mistimed)
        for kind, count in result.left_out.items():
            self._left_out.add(count, kind)
        return True

    def _clean_up(self) -> None:
        now = self._log.clock.monotonic()
        if self._events_since_cleanup < CLEANUP_EVENTS and now - self._cleaned_up_at < CLEANUP_SECONDS:
            return
        self._events_since_cleanup, self._cleaned_up_at = 0, now
        self._database.clean_up(self._witnessed.now())
        self._save_clock()

    def _save_clock(self, *, now: bool = False) -> None:
        try:
            self._witnessed.save(now=now)
        except OSError as error:
            self._log.log_once_a_minute("The clock of the graph could not be saved", error)
