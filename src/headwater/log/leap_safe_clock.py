"""The time for removal by age: the wall clock, as far as running processes have witnessed it.

A machine may start with a clock that is days ahead, and everything that is kept would look old. So a leap of
the wall clock is not believed at once: time then passes as fast as the clocks of running processes do, and
the leap is believed after the age limit has passed in this way. By then all that was stored before the leap
is older than the limit whatever the clock says: a wrong clock removes nothing, and a right one at worst
removes late. A clock that is set back undoes the leap.
"""

from __future__ import annotations

import logging
import threading
import zlib
from pathlib import Path

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.formats.json_decoder import json_decoder
from headwater.system.durable_files import replace

logger = logging.getLogger(__name__)

GAP_SECONDS = 300.0  # a restart takes less; more is a leap
SAVE_SECONDS = 60.0
MOST_SECONDS = 30 * 86_400.0  # a clock that ran for a month is believed, whatever the age limit


class Leap(msgspec.Struct, array_like=True):
    """A leap of the wall clock that is not believed yet: the witnessed time when it was met, and its size."""

    at: float
    seconds: float


class _State(msgspec.Struct):
    at: float  # the highest time that was witnessed
    leaps: list[Leap] = []
    behind_since: float | None = None  # the wall clock has been set back, and was then at this time


class LeapSafeClock:
    """Time that no leap ages, kept in a file between processes. Thread-safe.

    `limit_seconds` is the age at which something is removed. Two reads, also of two processes one after the
    other, may lie `gap_seconds` apart; a longer time counts as a leap.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_seconds: float,
        gap_seconds: float = GAP_SECONDS,
        clock: Clock | None = None,
        newest: float = 0.0,
    ) -> None:
        """Without a file, time begins at `newest`, the time of the newest event that is stored."""
        self._path = path
        self._limit = min(limit_seconds, MOST_SECONDS)
        self._gap = gap_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._seen = self._clock.monotonic()
        wall = self._clock.now()
        self._state = _load(path) or _State(min(newest or wall, wall))
        self._saved_at: float | None = None

    def now(self) -> float:
        """The time that may be compared with times of stored events: never ahead of what was witnessed."""
        with self._lock:
            return min(self._advance(), self._state.at)

    def latest(self) -> float:
        """The highest time that was witnessed; the wall clock may have been set back since."""
        with self._lock:
            self._advance()
            return self._state.at

    def stamp(self, last: float) -> float:
        """The time of an event that is stored now, after one of `last`.

        Never back, although the wall clock may be set back, unless `last` came from a leap that was undone.
        """
        now = self._clock.now()
        if now >= last and now >= self._state.at:
            return now
        now = max(now, self.latest())
        return max(now, last) if last - now <= self._gap else now

    @property
    def ahead_seconds(self) -> float:
        """By how much the wall clock is ahead of the time that was witnessed."""
        return _ahead(self._state)

    def save(self, *, now: bool = False) -> None:
        """Write the file, a minute after it was written or `now`; OSError if the disk fails."""
        with self._lock:
            self._advance()
            is_recent = self._saved_at is not None and self._seen - self._saved_at < SAVE_SECONDS
            if is_recent and not now:
                return
            content = msgspec.json.encode(self._state)
            replace(self._path, b"%s %08x\n" % (content, zlib.crc32(content)))
            self._saved_at = self._seen

    def _advance(self) -> float:
        """Bring the state up to date; returns the wall clock's time without the leaps."""
        state, monotonic = self._state, self._clock.monotonic()
        state.at += monotonic - self._seen
        self._seen = monotonic
        self._believe_old_leaps()
        time = self._clock.now() - _ahead(state)
        if time > state.at + self._gap:
            state.leaps.append(Leap(state.at, time - state.at))
            self._saved_at = None
            logger.warning(
                "The clock is %.1f hours ahead of the last time that was witnessed here; removal by age goes "
                "on as if it were not, until %.1f hours have passed.",
                (time - state.at) / 3600,
                self._limit / 3600,
            )
            time = state.at
        while time < state.at and state.leaps:  # set back
            leap = state.leaps[-1]
            back = min(leap.seconds, state.at - time)
            leap.seconds -= back
            time += back
            if leap.seconds <= 0:
                state.leaps.pop()
        state.at = max(state.at, time)
        self._believe_set_back(time)
        return time

    def _believe_old_leaps(self) -> None:
        state = self._state
        while state.leaps and state.at - state.leaps[0].at >= self._limit:
            seconds = state.leaps.pop(0).seconds
            state.at += seconds
            for leap in state.leaps:
                leap.at += seconds
            self._saved_at = None
            logger.warning("The clock is believed now: it has been %.1f hours ahead.", seconds / 3600)

    def _believe_set_back(self, time: float) -> None:
        state = self._state
        if state.at - time <= self._gap:
            state.behind_since = None
        elif state.behind_since is None:
            state.behind_since = state.at
        elif state.at - state.behind_since >= self._limit:
            state.at, state.behind_since = time, None


def ahead_seconds(path: Path) -> float:
    """By how much the wall clock was ahead of the witnessed time when the file was last written."""
    state = _load(path)
    return _ahead(state) if state is not None else 0.0


def _ahead(state: _State) -> float:
    return sum(leap.seconds for leap in state.leaps)


def _load(path: Path) -> _State | None:
    try:
        content, _, checksum = path.read_bytes().strip().rpartition(b" ")
        if b"%08x" % zlib.crc32(content) != checksum:
            raise ValueError("its checksum is wrong")
        return json_decoder(_State).decode(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.error("%s cannot be read (%s); time begins at the newest stored event.", path, error)
        return None
