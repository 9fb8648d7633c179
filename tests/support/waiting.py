"""Waiting for a condition, with a limit that a busy machine does not reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["SECONDS", "wait_until"]

SECONDS = 90.0

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str = "the condition", seconds: float = SECONDS) -> T:
    """Poll until the condition returns something true, and return that; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds:g} s"
        time.sleep(0.01)
    return found
