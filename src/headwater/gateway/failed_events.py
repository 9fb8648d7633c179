"""Replay: gateway rejects that somebody wants to be tried again, after the fix (G6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import orjson

from headwater.clock import Clock
from headwater.errors import ExtensionError, HeadwaterError
from headwater.extensions import load
from headwater.gateway.openlineage.validator import Validator, Violation
from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, Reject, RejectStore
from headwater.metrics import Metrics

__all__ = [
    "GROUP",
    "STAGE",
    "BothHandler",
    "FailedEvent",
    "FailedEventHandler",
    "FailedQueue",
    "LogHandler",
    "RejectsHandler",
    "load_handler",
    "replay",
]


log = logging.getLogger(__name__)


GROUP = "headwater.failed_handlers"


STAGE = "gateway"  # of the rejects


LOGGED_BYTES = 4096  # of an event in a line of the log


class FailedEvent(msgspec.Struct, frozen=True):
    """An event that was answered with 400: the bytes as they came, why, and when."""

    body: bytes
    reason: str
    violations: list[Violation]
    received_at: float


@runtime_checkable
class FailedEventHandler(Protocol):
    """Takes failed events. Constructed once with the rejects, before the gateway listens.

    `handle` is called by one thread that serves nothing else, with all that has gathered; it may block, and
    the senders are answered after it returns. What it raises is counted and logged; the answer stays 400.
    """

    def handle(self, events: Sequence[FailedEvent]) -> None:
        """Take these events, in the order in which they came."""
        ...

    def close(self) -> None:
        """Nothing more will come. Called once, by the same thread."""
        ...


class RejectsHandler:
    """Keeps failed events in the rejects, on disk before the sender is answered; they can be replayed."""

    def __init__(self, rejects: RejectStore) -> None:
        self._rejects = rejects

    def handle(self, events: Sequence[FailedEvent]) -> None:
        self._rejects.add(STAGE, [_reject(event) for event in events])

    def close(self) -> None:
        """The rejects belong to whoever opened them."""


class LogHandler:
    """Writes failed events to the process's log, one line each."""

    def __init__(self, rejects: RejectStore) -> None:
        del rejects  # every handler is constructed alike

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for event in events:
            text = event.body[:LOGGED_BYTES].decode("utf-8", "backslashreplace")
            cut = "…" if len(event.body) > LOGGED_BYTES else ""
            log.warning("An event was refused: %s Event: %s%s", event.reason, ascii(text)[1:-1], cut)

    def close(self) -> None:
        """Nothing is held."""


class BothHandler:
    """Rejects first, then the log."""

    def __init__(self, rejects: RejectStore) -> None:
        self._handlers = (RejectsHandler(rejects), LogHandler(rejects))

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for handler in self._handlers:
            handler.handle(events)

    def close(self) -> None:
        for handler in self._handlers:
            handler.close()


def load_handler(name: str, rejects: RejectStore) -> FailedEventHandler:
    """The handler of this name, constructed. Raises ExtensionError with the names that there are."""
    kind = load(GROUP, name, FailedEventHandler, what="failed-event handler")  # type: ignore[type-abstract]
    try:
        return kind(rejects)  # type: ignore[call-arg]
    except Exception as error:
        raise ExtensionError(
            f"the failed-event handler `{name}` cannot be made: {type(error).__name__}: {error}.",
            hint="Look at the package that brings it, or set `gateway.failed_events` to another.",
        ) from error


def _reject(event: FailedEvent) -> NewReject:
    details = [{"path": each.path, "reason": each.reason, "rule": each.rule} for each in event.violations]
    return NewReject(event.reason, event.body, details, None, event.received_at)


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


def replay(rejects: RejectStore, validator: Validator, queue: Log) -> int:
    """Validate all requested rejects once more and append those that pass now; returns how many passed.

    Blocks, so it is called by a thread that may wait. A crash between the append and the removal of the
    reject appends it twice, never not at all. When the disk refuses, the request stays for the next time.
    """
    passed = 0
    try:
        while requested := rejects.requested(STAGE):
            for reject in requested:
                passed += _again(reject, rejects, validator, queue)
    except HeadwaterError as error:
        log.warning("The replay of rejects waits: %s", error)
    return passed


def _again(reject: Reject, rejects: RejectStore, validator: Validator, queue: Log) -> bool:
    try:
        verdict = validator.check(orjson.loads(reject.body))
    except orjson.JSONDecodeError as error:
        rejects.failed_again(reject.id, f"The body is not JSON. {error}")
        return False
    if not verdict.ok:
        rejects.failed_again(reject.id, verdict.reason)
        return False
    queue.append_wait([reject.body])
    rejects.replayed(reject.id)
    return True
