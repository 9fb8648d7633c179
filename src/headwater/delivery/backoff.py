"""How long to wait before the next try; `Engine` schedules it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime

from headwater.settings import RetrySettings


def pause_seconds(settings: RetrySettings, failures: int, chance: float) -> float:
    """The pause after the n-th failure in a row; `chance` in [0, 1) varies it by up to half."""
    # the exponent is bounded: a float overflows after a thousand failures, that is, after a long night
    plain = settings.initial_seconds * 2.0 ** min(max(failures - 1, 0), 64)
    varied = min(plain, settings.max_seconds) * (0.5 + chance)
    return min(varied, settings.max_seconds)


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After asks for, as a number or as an HTTP date; None: nothing usable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError):
        return None
    if moment.tzinfo is None:  # "-0000" and the obsolete forms; HTTP dates are always GMT
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    __slots__ = ("_chance", "_settings", "failures")

    def __init__(self, settings: RetrySettings, chance: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._chance = chance
        self.failures = 0

    def failed(self, retry_after: float | None = None) -> float:
        """Count a failure; the pause is the receiver's wish where it stated one, else ours.

        A Retry-After of 0 seconds is replaced by our own pause, to avoid a tight loop.
        """
        self.failures += 1
        if retry_after:
            return min(retry_after, self._settings.max_retry_after_seconds)
        return pause_seconds(self._settings, self.failures, self._chance())

    def succeeded(self) -> None:
        self.failures = 0
