"""When positions were appended, by the steady clock of the process that appends."""

from __future__ import annotations

import threading
from bisect import bisect_right

MOST = 2048  # groups of positions; beyond that, neighbours become one


class AppendTimes:
    """Times of groups of positions, each that of its first: within a second, later coarser. Thread-safe."""

    def __init__(self, end: int) -> None:
        """Positions below `end` were appended before."""
        self._first = end
        self._ends: list[int] = []
        self._times: list[float] = []
        self._step_seconds = 1.0
        self._lock = threading.Lock()

    def add(self, end: int, at: float) -> None:
        """The positions up to `end` that were not known before are appended now."""
        with self._lock:
            if self._times and at - self._times[-1] < self._step_seconds:
                self._ends[-1] = end
                return
            self._ends.append(end)
            self._times.append(at)
            if len(self._times) > MOST:
                self._step_seconds *= 2
                self._times = self._times[::2]
                # of a last group without a neighbour the end stays
                self._ends = [self._ends[min(i + 1, MOST)] for i in range(0, len(self._ends), 2)]

    def of(self, position: int) -> float | None:
        """When the position was appended; None if it was before this process opened the log."""
        with self._lock:
            i = bisect_right(self._ends, position)
            return self._times[i] if position >= self._first and i < len(self._times) else None
