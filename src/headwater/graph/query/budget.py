"""The budget of a question: time, rows, bytes and steps of work, and whether its client still waits (G8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from headwater.errors import HeadwaterError

LIMIT_SECONDS = 10.0
MAX_ROWS = 1_000_000
MAX_BYTES = 64 * 1024 * 1024  # of the texts and facets in those rows
MAX_STEPS = 5_000_000  # of work in Python: a box, a line, or a lane of a layout, once
STEPS_BETWEEN_CHECKS = 2_000

_SMALLER = "Use a smaller depth or limit."


class QueryTimeout(HeadwaterError):
    """A query exceeded its time limit."""

    retryable = True


class QueryTooLarge(HeadwaterError):
    """A query needs more rows, bytes or work than one query may take."""


class ClientGone(HeadwaterError):
    """The client closed the connection before the answer."""


class Budget:
    """Counts what one question takes; `check` raises when a limit is passed or the client has left.

    Used by the thread that answers the question. `is_abandoned` must be safe to call from there.
    """

    def __init__(
        self,
        seconds: float = LIMIT_SECONDS,
        *,
        rows: int = MAX_ROWS,
        bytes: int = MAX_BYTES,
        steps: int = MAX_STEPS,
        is_abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._max_rows, self._max_bytes, self._max_steps = rows, bytes, steps
        self._is_abandoned = is_abandoned
        self._next_check = STEPS_BETWEEN_CHECKS
        self.rows = self.bytes = self.steps = 0

    def error(self) -> HeadwaterError | None:
        """Why the question must end; None while it may go on."""
        if self._is_abandoned():
            return ClientGone("The client closed the connection before the answer.")
        if time.monotonic() > self._until:
            return QueryTimeout(f"The query took longer than {self._seconds:g} seconds.", hint=_SMALLER)
        if self.rows > self._max_rows:
            return QueryTooLarge(f"The query reads more than {self._max_rows:,} rows.", hint=_SMALLER)
        if self.bytes > self._max_bytes:
            size = f"{self._max_bytes / 2**20:g} MiB"
            return QueryTooLarge(f"The query reads more than {size}.", hint=_SMALLER)
        if self.steps > self._max_steps:
            return QueryTooLarge(f"The drawing takes more than {self._max_steps:,} steps.", hint=_SMALLER)
        return None

    def check(self) -> None:
        """Raise QueryTimeout, QueryTooLarge or ClientGone when the question must end."""
        if (error := self.error()) is not None:
            raise error

    def work(self, steps: int) -> None:
        """Count steps of work; checks the limits every few thousand steps."""
        self.steps += steps
        if self.steps >= self._next_check:
            self._next_check = self.steps + STEPS_BETWEEN_CHECKS
            self.check()

    def row(self, row: Sequence[Any]) -> None:
        """Count a row that was read."""
        self.rows += 1
        for value in row:
            if isinstance(value, (str, bytes)):
                self.bytes += len(value)
        if self.rows > self._max_rows or self.bytes > self._max_bytes:
            self.check()
