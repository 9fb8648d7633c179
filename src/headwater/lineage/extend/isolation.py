"""Other people's code, called so that it can neither fail nor hold up an event (G10)."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.lineage.runs import ExtractionError

__all__ = ["Guard", "name_of"]

T = TypeVar("T")
SHORTEST_SECONDS = 0.05


def name_of(builder: object) -> str:
    """How errors name a builder."""
    cls = builder if isinstance(builder, type) else type(builder)
    return f"{cls.__module__}.{cls.__qualname__}"


class _Thread:
    """Runs one call after the other; left behind with the call that does not return."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.is_left = False
        self._thread = threading.Thread(target=self._work, name="headwater-lineage-extension", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether it is this thread that asks."""
        return threading.current_thread() is self._thread

    def run(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def _work(self) -> None:
        while not self.is_left:
            self._calls.get()()


class Guard:
    """Calls extensions on a thread of their own. Whoever does not return in time is not asked again.

    All calls for one event share the time: `begin` starts it anew.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = float("inf")
        self._thread: _Thread | None = None
        self._benched: dict[str, str] = {}
        self.errors: list[ExtractionError] = []

    def begin(self) -> None:
        """A new event: its time begins, its errors are none."""
        self._until = time.monotonic() + self._seconds
        self.errors = [ExtractionError(name, text) for name, text in self._benched.items()]

    def call(self, builder: object, function: Callable[[], T], otherwise: T) -> T:
        """The result, or `otherwise` if it raises, is late, or has been late before."""
        name = name_of(builder)
        if name in self._benched:
            return otherwise
        if self._thread is not None and self._thread.is_current:
            # one extension asks another: both are under the first one's clock
            return function()
        done = threading.Event()
        results: list[Any] = []
        failures: list[ExtractionError] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # SystemExit too: it is lineage's thread that would end
                failures.append(
                    ExtractionError(name, f"{type(error).__name__}: {error}", traceback.format_exc())
                )
            done.set()

        if self._thread is None:
            self._thread = _Thread()
        self._thread.run(run)
        seconds = max(SHORTEST_SECONDS, self._until - time.monotonic())
        if not done.wait(seconds):
            self._thread.is_left = True
            self._thread = None
            text = f"did not return within {min(seconds, self._seconds):.1f} seconds and is not asked again"
            self._benched[name] = text
            self.errors.append(ExtractionError(name, text))
            return otherwise
        self.errors += failures
        return otherwise if failures else results[0]
