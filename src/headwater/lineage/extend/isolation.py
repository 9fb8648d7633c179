"""Runs foreign code on a thread that can be abandoned, so that it cannot fail or block an event (G10)."""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Generic, NamedTuple, TypeVar

from headwater.clock import Clock, SystemClock
from headwater.lineage.runs import ExtractionError

logger = logging.getLogger(__name__)

T = TypeVar("T")
SHORTEST_SECONDS = 0.05
PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0
END_SECONDS = 5.0


def class_name(builder: object) -> str:
    """The name of a builder in errors; a name stays as it is."""
    if isinstance(builder, str):
        return builder
    cls = builder if isinstance(builder, type) else type(builder)
    return f"{cls.__module__}.{cls.__qualname__}"


class PerBuild(Generic[T]):
    """An attribute with a value for each isolated call, and for the calls that it makes.

    So an abandoned build reads and writes its own state, and never that of the build after it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> T:
        variable = self._variable(instance)
        try:
            return variable.get()
        except LookupError:
            value = self._make()
            variable.set(value)
            return value

    def __set__(self, instance: object, value: T) -> None:
        self._variable(instance).set(value)

    def _variable(self, instance: object) -> ContextVar[T]:
        found: ContextVar[T] = instance.__dict__.setdefault(self._name, ContextVar(self._name))
        return found


class NotCompleted(Exception):
    """An isolated call raised (`stack` is set), did not return in time (`is_late`), or was not made."""

    def __init__(self, text: str, *, stack: str | None = None, is_late: bool = False) -> None:
        super().__init__(text)
        self.stack = stack
        self.is_late = is_late


class _Worker:
    """One daemon thread. Abandoned with the call that does not return; it ends when that call does."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.is_abandoned = False
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def put(self, call: Callable[[], None] | None) -> None:
        self._calls.put(call)

    def _work(self) -> None:
        while not self.is_abandoned and (call := self._calls.get()) is not None:
            call()


class IsolatedThread:
    """Runs calls one after the other on another thread; after a late call, the next one gets a new thread.

    After `pause_after` late calls in a row it makes no call for a minute, since each leaves a thread behind.
    """

    def __init__(self, name: str, *, pause_after: int | None = None, clock: Clock | None = None) -> None:
        self._name = name
        self._pause_after = pause_after
        self._clock = clock or SystemClock()
        self._worker: _Worker | None = None
        self._late = 0
        self._paused_until = 0.0

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._worker is not None and threading.current_thread() is self._worker.thread

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """The result of the call. Raises NotCompleted if there is none within `seconds`."""
        if (
            self._pause_after is not None
            and self._late >= self._pause_after
            and self._clock.monotonic() < self._paused_until
        ):
            raise NotCompleted("not called: the last calls did not return in time")
        worker = self._worker = self._worker or _Worker(self._name)
        context = copy_context()
        done = threading.Event()
        results: list[T] = []
        failures: list[NotCompleted] = []

        def work() -> None:
            try:
                results.append(context.run(call))
            except BaseException as error:  # SystemExit too: it would end lineage's own thread
                text = f"{type(error).__name__}: {error}"
                failures.append(NotCompleted(text, stack=traceback.format_exc()))
            done.set()

        worker.put(work)
        if not done.wait(seconds):
            worker.is_abandoned = True
            if self._worker is worker:
                self._worker = None
            self._late += 1
            self._paused_until = self._clock.monotonic() + PAUSE_SECONDS
            raise NotCompleted(f"did not return within {seconds:.1f} seconds", is_late=True)
        self._late = 0
        if failures:
            raise failures[0]
        return results[0]

    def close(self) -> None:
        """End the thread, which runs no call now; an abandoned thread ends by itself."""
        if self._worker is not None:
            self._worker.put(None)
            self._worker.thread.join(END_SECONDS)
            self._worker = None


class _Pause(NamedTuple):
    text: str
    seconds: float
    until: float


class Guard:
    """Calls builders: Headwater's own directly, those of extensions isolated and with a time limit (G10).

    A builder that is late is not called for a minute; each further time doubles the pause, since each leaves
    a thread behind. All calls for one event share the time: `start_event` resets it. An event that was
    abandoned calls no builder any more: its calls would run beside those of the next.
    """

    errors: PerBuild[list[ExtractionError]] = PerBuild(list)
    _until = PerBuild(lambda: float("inf"))
    _event = PerBuild(int)

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._thread = IsolatedThread("headwater-lineage-extension")
        self._paused: dict[str, _Pause] = {}
        self._builtin: set[int] = set()
        self._last_event = 0

    def register_builtin(self, builder: object) -> None:
        """Call this builder on the event builder's own thread."""
        self._builtin.add(id(builder))

    def is_builtin(self, builder: object) -> bool:
        """Whether the builder is Headwater's own."""
        return id(builder) in self._builtin

    def start_event(self) -> None:
        """Start the time limit of a new event; its errors begin with the builders that are not called now."""
        self._last_event += 1
        self._event = self._last_event
        self._until = time.monotonic() + self._seconds
        now = self._clock.monotonic()
        self.errors = [
            ExtractionError(name, one.text) for name, one in self._paused.items() if now < one.until
        ]

    @property
    def is_abandoned(self) -> bool:
        """Whether the event of the caller was given up: another has begun."""
        return self._event != self._last_event

    def call(self, builder: object, function: Callable[[], T]) -> T | None:
        """The result; None if the call raises or is late, while the builder pauses, or for an old event.

        `builder` is named in errors; a text is the name itself.
        """
        if self.is_abandoned:
            return None
        name = class_name(builder)
        if self.is_builtin(builder):
            try:
                return function()
            except Exception as error:
                logger.debug("A builder failed", exc_info=True)
                self.errors.append(ExtractionError(name, f"{type(error).__name__}: {error}"))
                return None
        pause = self._paused.get(name)
        if pause is not None and self._clock.monotonic() < pause.until:
            return None
        if self._thread.is_current:
            # one extension calls another: both are within the first one's time
            return function()
        seconds = max(SHORTEST_SECONDS, min(self._seconds, self._until - time.monotonic()))
        try:
            made = self._thread.run(function, seconds)
        except NotCompleted as error:
            text = str(error)
            if error.is_late:
                length = PAUSE_SECONDS if pause is None else min(2 * pause.seconds, LONGEST_PAUSE_SECONDS)
                text = f"{text} and is not called for {length:.0f} seconds"
                self._paused[name] = _Pause(text, length, self._clock.monotonic() + length)
            self.errors.append(ExtractionError(name, text, error.stack))
            return None
        self._paused.pop(name, None)
        return made
