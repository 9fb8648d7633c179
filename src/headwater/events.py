"""The event, as the stages hand it on."""

from __future__ import annotations

from typing import NamedTuple

EVENT_COST = 256  # bytes of memory that an event in a queue takes besides its body, rounded up


class Event(NamedTuple):
    """One acknowledged event: its place in the log, when it was received, and the bytes as they came."""

    position: int
    received_at: float
    body: bytes


def fitted(body: bytes) -> bytes:
    """The same bytes in memory of just their length, for those that are kept (G8).

    Encoders leave room behind what they return: orjson takes 4 KiB for 40 bytes and up to 13 times what is
    needed for more, and never gives it back. `len()` and `sys.getsizeof()` do not show it.
    """
    return bytes(memoryview(body))
