"""The way to the failed-event handler: a bounded queue and one thread of its own.

A slow disk or a slow handler holds back those who send non-compliant events, and nobody else (G7).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headwater.clock import Clock
from headwater.gateway.failed import FailedEvent, FailedEventHandler
from headwater.metrics import Metrics

__all__ = ["FailedQueue"]

log = logging.getLogger(__name__)

MAX_EVENTS = 10_000  # waiting; the bytes are bounded by `gateway.max_pending_bytes`
GROUP_EVENTS = 1_000  # handed to the handler at a time
COMPLAIN_SECONDS = 60.0  # a handler that fails is logged once in this time


class FailedQueue:
    """Hands failed events to the handler in groups; `done([token, …])` is called by its thread afterwards."""

    def __init__(
        self,
        handler: FailedEventHandler,
        done: Callable[[list[Any]], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._done = done
        self._errors = metrics.counter("gateway_failed_handler_errors")
        self._clock = clock
        self._complained_at: float | None = None
        self._waiting: list[tuple[Sequence[FailedEvent], Any]] = []
        self._count = 0
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="failed-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether the handler is so far behind that senders should be told to come back."""
        return self._count >= MAX_EVENTS

    def put(self, events: Sequence[FailedEvent], token: Any) -> None:
        """Never blocks, never refuses: ask `is_full` before anything is promised to the sender."""
        with self._wake:
            self._waiting.append((events, token))
            self._count += len(events)
            self._wake.notify()

    def close(self, timeout_seconds: float) -> None:
        """Hand over what waits, close the handler, end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            log.error("The failed-event handler did not end within %.1f seconds.", timeout_seconds)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing:
                    self._wake.wait()
                waiting, self._waiting = self._waiting, []
            if not waiting:
                break
            events = [event for group, _ in waiting for event in group]
            for start in range(0, len(events), GROUP_EVENTS):
                self._hand_over(events[start : start + GROUP_EVENTS])
            with self._wake:
                self._count -= len(events)
            self._done([token for _, token in waiting])
        try:
            self._handler.close()
        except Exception:
            log.exception("The failed-event handler could not be closed.")

    def _hand_over(self, events: Sequence[FailedEvent]) -> None:
        try:
            self._handler.handle(events)
        except Exception as error:
            self._errors.add(len(events))
            now = self._clock.monotonic()
            if self._complained_at is None or now - self._complained_at >= COMPLAIN_SECONDS:
                self._complained_at = now
                log.exception("The failed-event handler could not take %d events: %s.", len(events), error)
