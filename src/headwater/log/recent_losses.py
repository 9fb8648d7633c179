"""The losses of the last hour, which /readyz reports for so long."""

from __future__ import annotations

import threading

from headwater.clock import Clock

RECENT_SECONDS = 3600.0


class RecentLosses:
    """Numbers of lost events by name, until an hour after the last of them (steady clock). Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[int, float]] = {}

    def add(self, name: str, events: int) -> None:
        """Count events that are lost now."""
        with self._lock:
            before, _ = self._found.get(name, (0, 0.0))
            self._found[name] = (before + events, self._clock.monotonic())

    def set(self, name: str, events: int, lost_at: float) -> None:
        """Bring the number up to date; `lost_at` is when an earlier process lost the last of them.

        Events that are lost while this process looks are lost now, whatever the wall clock says.
        """
        with self._lock:
            known = self._found.get(name)
            if known is None:
                ago = max(0.0, self._clock.now() - lost_at)
                self._found[name] = (events, self._clock.monotonic() - ago)
            elif events != known[0]:
                self._found[name] = (events, self._clock.monotonic())

    def recent(self) -> dict[str, int]:
        """The numbers of events, in all, of those names that lost some within the last hour."""
        since = self._clock.monotonic() - RECENT_SECONDS
        with self._lock:
            return {name: events for name, (events, at) in self._found.items() if events and at > since}
