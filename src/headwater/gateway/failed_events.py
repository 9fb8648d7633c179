"""Failed events: the handlers, and their queue and thread (G6).

Start reading at `FailedEventHandler`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from headwater.clock import Clock
from headwater.errors import ExtensionError
from headwater.extensions import load
from headwater.formats.printable import printable_line
from headwater.gateway.openlineage_validator import Violation
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.metrics import Metrics

logger = logging.getLogger(__name__)
T = TypeVar("T")
GROUP = "headwater.failed_handlers"
STAGE = "gateway"  # of the rejects
LOGGED_BYTES = 4096  # of an event in a log line
CUT = "cut"  # the rule in the details of a reject whose body is not complete
NAMESPACE = "namespace_of_key"  # the rule in the details of a reject whose API key was bound to a `pattern`


class FailedEvent(msgspec.Struct, frozen=True):
    """A refused event or batch: its bytes, the reason, and the time.

    `size` is the number of its bytes as it was sent; `body` is its beginning, of `gateway.max_failed_bytes`
    at most. `namespaces` are those that the sender's API key is bound to; empty if it is not bound.
    """

    body: bytes
    reason: str
    violations: list[Violation]
    received_at: float
    size: int
    namespaces: tuple[str, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether `body` is not complete, so that it cannot be replayed."""
        return len(self.body) < self.size


@runtime_checkable
class FailedEventHandler(Protocol):
    """Handles failed events. Constructed once with the rejects, before the gateway listens.

    One thread calls `handle` with all pending events; it may block, and the senders are answered after it
    returns. Its exceptions are counted and logged, and do not change the answer.
    """

    def handle(self, events: Sequence[FailedEvent]) -> None:
        """Handle events, in the order in which they arrived."""
        ...

    def close(self) -> None:
        """Release resources. Called once, by the same thread, after the last event."""
        ...


class RejectsHandler:
    """Stores failed events in the rejects, on disk before the sender is answered; they can be replayed."""

    def __init__(self, rejects: RejectStore) -> None:
        self._rejects = rejects

    def handle(self, events: Sequence[FailedEvent]) -> None:
        self._rejects.add(STAGE, [_reject(event) for event in events])

    def close(self) -> None:
        """Leave the rejects open: the server owns them."""


class LogHandler:
    """Logs failed events, one line each."""

    def __init__(self, rejects: RejectStore) -> None:
        del rejects  # the protocol passes it

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for event in events:
            text = event.body[:LOGGED_BYTES].decode("utf-8", "backslashreplace")
            cut = f"… ({event.size} bytes)" if event.size > LOGGED_BYTES else ""
            reason, shown = printable_line(event.reason), ascii(text)[1:-1]
            logger.warning("An event was refused: %s Event: %s%s", reason, shown, cut)

    def close(self) -> None:
        """Release nothing."""


class BothHandler:
    """Stores failed events in the rejects, then logs them."""

    def __init__(self, rejects: RejectStore) -> None:
        self._handlers = (RejectsHandler(rejects), LogHandler(rejects))

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for handler in self._handlers:
            handler.handle(events)

    def close(self) -> None:
        for handler in self._handlers:
            handler.close()


def load_handler(name: str, rejects: RejectStore) -> FailedEventHandler:
    """Return the handler of this name; ExtensionError with the known names if there is none."""
    kind = load(GROUP, name, FailedEventHandler, what="failed-event handler")  # type: ignore[type-abstract]
    try:
        return kind(rejects)  # type: ignore[call-arg]
    except Exception as error:
        raise ExtensionError(
            f"the failed-event handler `{name}` cannot be constructed: {type(error).__name__}: {error}.",
            hint="Fix or update the package of the handler, or set `gateway.failed_events` to `rejects`.",
        ) from error


def _reject(event: FailedEvent) -> NewReject:
    details = [{"path": each.path, "reason": each.reason, "rule": each.rule} for each in event.violations]
    if event.is_cut:
        kept = (
            f"only the first {len(event.body)} of its {event.size} bytes are kept (gateway.max_failed_bytes)"
        )
        details.insert(0, {"path": "", "reason": kept, "rule": CUT})
    for pattern in event.namespaces:  # a replay has no key
        bound = f"its API key was for the namespace {pattern}"
        details.append({"path": "", "reason": bound, "rule": NAMESPACE, "pattern": pattern})
    return NewReject(event.reason, event.body, details, None, event.received_at)


MAX_EVENTS = 10_000  # in the queue; their bytes are bounded by `gateway.max_pending_bytes`
GROUP_EVENTS = 1_000  # in one call of the handler
LOG_SECONDS = 60.0  # a failing handler is logged once in this time


class FailedQueue(Generic[T]):
    """Passes failed events to the handler in groups, in one thread, which then calls `done([receipt, …])`."""

    def __init__(
        self,
        handler: FailedEventHandler,
        done: Callable[[list[T]], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._done = done
        self._errors = metrics.counter("gateway_failed_handler_errors")
        self._clock = clock
        self._logged_at: float | None = None
        self._pending: list[tuple[Sequence[FailedEvent], T]] = []
        self._count = 0
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="failed-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether the handler is so far behind that senders should retry later."""
        return self._count >= MAX_EVENTS

    def put(self, events: Sequence[FailedEvent], receipt: T) -> None:
        """Queue events; never blocks. Check `is_full` before events are acknowledged."""
        with self._wake:
            self._pending.append((events, receipt))
            self._count += len(events)
            self._wake.notify()

    def close(self, timeout_seconds: float) -> None:
        """Pass the pending events to the handler, close it, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            logger.error("The failed-event handler did not end within %.1f seconds.", timeout_seconds)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._closing:
                    self._wake.wait()
                pending, self._pending = self._pending, []
            if not pending:
                break
            events = [event for group, _ in pending for event in group]
            for start in range(0, len(events), GROUP_EVENTS):
                self._handle(events[start : start + GROUP_EVENTS])
            with self._wake:
                self._count -= len(events)
            self._done([receipt for _, receipt in pending])
        try:
            self._handler.close()
        except Exception:
            logger.exception("The failed-event handler could not be closed.")

    def _handle(self, events: Sequence[FailedEvent]) -> None:
        try:
            self._handler.handle(events)
        except Exception as error:
            self._errors.add(len(events))
            now = self._clock.monotonic()
            if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
                self._logged_at = now
                logger.exception("The failed-event handler failed on %d events: %s.", len(events), error)
