"""Logs that a receiver refused events: none is skipped in silence, and a flood of them is a line a minute."""

from __future__ import annotations

import logging

from headwater.events import Event

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 60.0
_REASON_CHARACTERS = 300


class RefusalLog:
    """Counts the refused events of one outlet, and logs the first at once."""

    def __init__(self, outlet: str) -> None:
        self._outlet = outlet
        self._first: tuple[int, str] = (0, "")  # position and reason of the first since the last line
        self._count = 0
        self._logged_at: float | None = None

    def add(self, refused: list[tuple[Event, str]], now: float) -> None:
        """Count events that are in the rejects; `now` is of a monotonic clock."""
        if refused and not self._count:
            event, reason = refused[0]
            self._first = event.position, reason
        self._count += len(refused)
        self.flush(now)

    def flush(self, now: float, *, last: bool = False) -> None:
        """Log what was counted, if the last line is old enough or this is the `last` one."""
        is_due = last or self._logged_at is None or now - self._logged_at >= PAUSE_SECONDS
        if not (self._count and is_due):
            return
        position, reason = self._first
        logger.warning(
            "Outlet %s refused %d events; they are in the rejects, see `headwater rejects list --stage "
            "outlet:%s`. The first is event %d: %s",
            self._outlet,
            self._count,
            self._outlet,
            position,
            reason[:_REASON_CHARACTERS],
        )
        self._count = 0
        self._logged_at = now
