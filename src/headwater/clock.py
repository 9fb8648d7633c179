"""The wall clock and the monotonic clock as an argument, so that tests control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: `now` is the wall clock and may jump, `monotonic` measures spans and never goes back."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...


class SystemClock:
    """The machine's clocks."""

    # the functions themselves: the gateway asks several times per request
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock for tests: stands still until `advance`; `jump` moves the wall clock alone, as NTP does."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        self._now += seconds
