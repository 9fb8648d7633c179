"""The event, as the stages hand it on."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Event"]


class Event(NamedTuple):
    """One acknowledged event: its place in the log, when it was received, and the bytes as they came."""

    position: int
    received_at: float
    body: bytes
