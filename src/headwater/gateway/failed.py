"""Failed events: who takes the events that are refused as non-compliant.

This is an extension point. A handler is a class that the entry point group `headwater.failed_handlers` names;
the setting `gateway.failed_events` chooses it. The built-in ones enter through the same door.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headwater.errors import ExtensionError
from headwater.extensions import load
from headwater.gateway.openlineage import Violation
from headwater.log.rejects import NewReject, Rejects

__all__ = [
    "GROUP",
    "STAGE",
    "BothHandler",
    "FailedEvent",
    "FailedEventHandler",
    "LogHandler",
    "RejectsHandler",
    "load_handler",
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

    def __init__(self, rejects: Rejects) -> None:
        self._rejects = rejects

    def handle(self, events: Sequence[FailedEvent]) -> None:
        self._rejects.add(STAGE, [_reject(event) for event in events])

    def close(self) -> None:
        """The rejects belong to whoever opened them."""


class LogHandler:
    """Writes failed events to the process's log, one line each."""

    def __init__(self, rejects: Rejects) -> None:
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

    def __init__(self, rejects: Rejects) -> None:
        self._handlers = (RejectsHandler(rejects), LogHandler(rejects))

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for handler in self._handlers:
            handler.handle(events)

    def close(self) -> None:
        for handler in self._handlers:
            handler.close()


def load_handler(name: str, rejects: Rejects) -> FailedEventHandler:
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
