"""Building events under a deadline.

A builder that raises or never returns costs its event some of its content, and nobody else anything (G10).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from typing import Any, Protocol

from headwater.clock import Clock, SystemClock
from headwater.lineage.events.size_limit import add_errors
from headwater.lineage.runs import ExtractionError, Run, State

__all__ = ["Builder", "DeadlineBuilder"]

logger = logging.getLogger(__name__)

Event = dict[str, Any]

MOST_LATE = 3  # builds in a row that came too late, after which nobody is asked for a while
PAUSE_SECONDS = 60.0
END_SECONDS = 5.0


class Builder(Protocol):
    """Makes events of runs. One thread calls it; a call that came too late may still run beside."""

    def build(self, run: Run, state: str, time: int) -> Event:
        """The whole event, valid; may raise, may take long."""
        ...

    def partial(self, run: Run, state: str, time: int) -> Event:
        """The event without datasets and without anything of extensions: names, parents, the run's own error.

        Must neither raise nor wait.
        """
        ...


class _Task:
    def __init__(self, run: Run, state: str, time: int) -> None:
        self.arguments = (run, state, time)
        self.done = threading.Event()
        self.event: Event | None = None
        self.error: ExtractionError | None = None


class _Worker:
    """A thread that builds; left behind when it does not come back."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._given = threading.Semaphore(0)
        self._task: _Task | None = None
        self.is_left = False
        self._thread = threading.Thread(target=self._work, name="headwater-lineage-build", daemon=True)
        self._thread.start()

    def give(self, task: _Task | None) -> None:
        self._task = task
        self._given.release()

    def end(self) -> None:
        """It builds nothing now, so it ends at once."""
        self.give(None)
        self._thread.join(END_SECONDS)

    def _work(self) -> None:
        while True:
            self._given.acquire()
            task, self._task = self._task, None
            if task is None:
                return
            try:
                task.event = self._builder.build(*task.arguments)
            except BaseException as error:  # a builder may even raise SystemExit
                task.error = ExtractionError(
                    "build", f"{type(error).__name__}: {error}", traceback.format_exc()
                )
            task.done.set()
            if self.is_left:
                return


class DeadlineBuilder:
    """Builds each event in time, or a partial one that says why; a circuit breaker for builders that hang."""

    def __init__(self, builder: Builder, seconds: float, *, clock: Clock | None = None) -> None:
        self._builder = builder
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._worker: _Worker | None = None
        self._late = 0
        self._paused_until = 0.0
        self._hurry_until = float("inf")

    def hurry(self, until: float) -> None:
        """From now on no event may take longer than until then, by the monotonic clock."""
        self._hurry_until = until

    def build(self, run: Run, state: State, time: int) -> Event | None:
        """The event; partial where it could not be built in time. None only if not even that can be made."""
        if self._late >= MOST_LATE and self._clock.monotonic() < self._paused_until:
            return self._partial(
                run, state, time, ExtractionError("build", "builders hang; none is asked for a while")
            )
        if self._worker is None:
            self._worker = _Worker(self._builder)
        task = _Task(run, state, time)
        self._worker.give(task)
        seconds = max(0.05, min(self._seconds, self._hurry_until - self._clock.monotonic()))
        if not task.done.wait(seconds):
            self._worker.is_left = True
            self._worker = None
            self._late += 1
            self._paused_until = self._clock.monotonic() + PAUSE_SECONDS
            logger.warning("Lineage of %r is partial: not built within %.1f s.", run, seconds)
            return self._partial(
                run, state, time, ExtractionError("build", f"not built within {seconds:.1f} seconds")
            )
        self._late = 0
        if task.error is not None:
            logger.warning("Lineage of %r is partial: %s", run, task.error.text)
            return self._partial(run, state, time, task.error)
        return task.event

    def close(self) -> None:
        """End the thread, unless it is in somebody's hands."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _partial(self, run: Run, state: State, time: int, error: ExtractionError) -> Event | None:
        with contextlib.suppress(Exception):
            event = self._builder.partial(run, state, time)
            add_errors(event, [error])
            return event
        logger.exception("No event for %r", run)
        return None
