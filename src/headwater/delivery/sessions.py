"""A session: the events of one key, in order, with at most one request under way.

    queue ──take──► batch under way ──settle──► done | refused | back to the front, for the next try

A session exists only while it holds events. Its id follows from the key, so one that was released and comes
back is the same session to the receiver.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from headwater.delivery.batches import Buffer
from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import Batch, Delivered, Outlet, Refused, Results, Retry
from headwater.errors import EventRefused
from headwater.events import Event
from headwater.settings import RetrySettings


class Backoff(msgspec.Struct):
    """Counts failures in a row and computes the pause after each."""

    settings: RetrySettings
    chance: Callable[[], float] = random.random
    failures: int = 0

    def failed(self, retry_after: float | None = None) -> float:
        """Count a failure and return the pause: that of the receiver's Retry-After, or else our own.

        A Retry-After of 0 seconds is replaced by our own pause, to avoid a tight loop.
        """
        settings = self.settings
        self.failures += 1
        if retry_after:
            return min(retry_after, settings.max_retry_after_seconds)
        # the exponent is bounded: a float overflows after a thousand failures, that is, after a long night
        plain = settings.initial_seconds * 2.0 ** min(self.failures - 1, 64)
        varied = min(plain, settings.max_seconds) * (0.5 + self.chance())
        return min(varied, settings.max_seconds)

    def succeeded(self) -> None:
        self.failures = 0


class Settlement(msgspec.Struct):
    """The result of one try: events delivered, events refused for good, and the pause before the next try."""

    delivered: list[Event] = []
    refused: list[tuple[Event, str]] = []
    pause: bool = False
    reason: str = ""
    after_seconds: float | None = None
    pauses_all: bool = False  # the pause is for all sessions of the outlet
    gave_up: bool = False  # events were refused since they had been tried for too long

    def retry_later(self, reason: str, after_seconds: float | None = None) -> None:
        """Require a pause; the first reason and the longest Retry-After are kept."""
        self.reason = self.reason or reason
        self.pause = True
        if after_seconds is not None:
            self.after_seconds = max(after_seconds, self.after_seconds or 0.0)


class Session(msgspec.Struct, eq=False):
    """State of one key, for the scheduler's loop alone."""

    id: str
    key: Key
    backoff: Backoff
    queue: deque[tuple[float, Event]] = msgspec.field(default_factory=deque)  # when it came, the event
    resend: deque[list[Event]] = msgspec.field(default_factory=deque)
    """Goes before the queue, each part as a batch of its own."""
    in_flight: list[Event] = []
    bytes: int = 0  # of all events held
    timer: asyncio.TimerHandle | None = None  # until the pause is over, or the batch is old enough
    is_queued: bool = False  # stands in the line for a request
    is_sending: bool = False
    awaits_commit: bool = False  # the outcome of the last batch is not stored yet
    failing_since: float | None = None  # first failure of a row of them, on the loop's clock
    reason: str = ""
    first_tried: tuple[int, float] = (0, 0.0)  # the event in front, and its first try on the loop's clock

    def put(self, now: float, event: Event) -> None:
        self.queue.append((now, event))
        self.bytes += len(event.body)

    @property
    def is_empty(self) -> bool:
        return not (self.queue or self.resend or self.in_flight)

    @property
    def is_failing(self) -> bool:
        return self.failing_since is not None

    def events(self) -> Iterator[Event]:
        """All events held, in order."""
        yield from self.in_flight
        for part in self.resend:
            yield from part
        for _, event in self.queue:
            yield event

    def take(self, outlet: Outlet) -> tuple[Batch, list[tuple[Event, str]]]:
        """The next batch, now under way; or an empty batch and one event that fits no request, even trimmed.

        Events after that one are left for the next call.
        """
        buffer = Buffer(outlet, self.id, self.key)
        unfit: list[tuple[Event, str]] = []
        source = self.resend[0] if self.resend else None
        used = 0
        while len(source) > used if source is not None else self.queue:
            event = source[used] if source is not None else self.queue[0][1]
            try:
                if not buffer.add(event):
                    break
            except EventRefused as error:
                if len(buffer):
                    break  # it is refused in its turn, so that a blocking one does not overtake
                unfit.append((event, error.text))
            if source is not None:
                used += 1
            else:
                self.queue.popleft()
            if unfit:
                break
        if source is not None:
            del source[:used]
            if not source:
                self.resend.popleft()
        self.in_flight = [*buffer.batch.events, *(event for event, _ in unfit)]
        return buffer.batch, unfit

    def settle(self, results: Results, retries_refused: Callable[[Event], bool]) -> Settlement:
        """Sort the events under way by their results; those to be tried again go back to the front."""
        settlement = Settlement()
        again: list[Event] = []
        for event, result in zip(self.in_flight, results, strict=False):
            if isinstance(result, Delivered):
                settlement.delivered.append(event)
            elif isinstance(result, Refused) and not retries_refused(event):
                settlement.refused.append((event, result.reason))
            else:
                settlement.retry_later(
                    result.reason, result.after_seconds if isinstance(result, Retry) else None
                )
                again.append(event)
        again += self.in_flight[len(results) :]
        self.in_flight = []
        if again:
            self.resend.appendleft(again)
        if not (settlement.delivered or settlement.refused or settlement.pause):
            settlement.retry_later("the outlet tried none of the events")
        return settlement

    def give_up(self, reason: str, retries_refused: Callable[[Event], bool]) -> list[tuple[Event, str]]:
        """Remove the events that the last try left in front, except those that are retried without limit."""
        front = self.resend.popleft() if self.resend else []
        if kept := [event for event in front if retries_refused(event)]:
            self.resend.appendleft(kept)
        return [(event, reason) for event in front if not retries_refused(event)]

    def split(self) -> None:
        """Send the halves of the batch under way one after the other, since it holds a bad event."""
        half = len(self.in_flight) // 2
        parts = self.in_flight[:half], self.in_flight[half:]
        self.in_flight = []
        self.resend.extendleft(part for part in reversed(parts) if part)

    def drop_after(self, keep_bytes: int, keep_events: int) -> list[Event]:
        """Forget all but the first events, within both limits but at least one; returns the forgotten.

        For a session whose events can be read again from the log. Not while a request is under way.
        """
        held = list(self.events())
        kept, size = 1, len(held[0].body) if held else 0
        while kept < min(len(held), keep_events) and size + len(held[kept].body) <= keep_bytes:
            size += len(held[kept].body)
            kept += 1
        if kept >= len(held):
            return []
        # what was split stays split: a part is cut short, never joined with the next
        remaining = kept
        parts: deque[list[Event]] = deque()
        for part in self.resend:
            if remaining <= 0:
                break
            parts.append(part[:remaining])
            remaining -= len(parts[-1])
        self.resend = parts
        while len(self.queue) > remaining:
            self.queue.pop()
        self.bytes = size
        return held[kept:]
