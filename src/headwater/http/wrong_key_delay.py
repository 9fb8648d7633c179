"""Slows and logs requests with wrong keys, per address (G12).

A right key is never delayed, so a sender that guesses or is misconfigured locks out no other sender behind
its address. What is delayed is the answer 401, which is then the last one of its connection: a guess costs a
connection for as long as it is unanswered, and those are limited per address.
"""

from __future__ import annotations

import logging

from headwater.clock import Clock

logger = logging.getLogger(__name__)

FREE = 10  # wrong keys that are answered at once; one more each second
STEP_SECONDS = 0.1  # longer after each wrong key beyond them
MAX_SECONDS = 1.0
MAX_LEVEL = FREE + MAX_SECONDS / STEP_SECONDS  # so that it is forgotten within seconds
MAX_ADDRESSES = 4096
LOG_SECONDS = 60.0  # between two lines about one address
LINE_SECONDS = 1.0  # between two lines about any address


class _Record:
    __slots__ = ("at", "count", "level", "logged_at")

    def __init__(self, at: float) -> None:
        self.at = at
        self.level = 0.0  # wrong keys, less one for each second
        self.count = 0  # wrong keys since the last line in the log
        self.logged_at = -LOG_SECONDS + at


class WrongKeys:
    """Counts the wrong keys of the last addresses that sent some."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._records: dict[str, _Record] = {}  # the latest last
        self._line_at = -LINE_SECONDS + clock.monotonic()

    def seconds_to_wait(self, address: str) -> float:
        """Count a wrong or missing key; return how long its answer must wait."""
        now = self._monotonic()
        record = self._records.pop(address, None) or _Record(now)
        self._records[address] = record
        if len(self._records) > MAX_ADDRESSES:
            del self._records[next(iter(self._records))]
        record.level = min(MAX_LEVEL, max(0.0, record.level - (now - record.at)) + 1)
        record.at = now
        record.count += 1
        if record.level <= FREE:
            return 0.0
        if now - record.logged_at >= LOG_SECONDS and now - self._line_at >= LINE_SECONDS:
            logger.warning(
                "%d requests from %s had no key or a wrong one; the answers to it are delayed now.",
                record.count,
                address or "an unknown address",
            )
            record.count, record.logged_at, self._line_at = 0, now, now
        return min(MAX_SECONDS, (record.level - FREE) * STEP_SECONDS)
