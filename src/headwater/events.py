"""The event, as one stage passes it to the next."""

from __future__ import annotations

from typing import NamedTuple

EVENT_COST = 256  # bytes of memory that an event in a queue takes besides its body, rounded up


class Event(NamedTuple):
    """One acknowledged event: its place in the log, when it was received, and the bytes as they came."""

    position: int
    received_at: float
    body: bytes


def fitted(body: bytes) -> bytes:
    """Return the same bytes in a buffer of exactly their length, for bodies that are kept in memory (G8).

    Encoders allocate more than they return: orjson takes 4 KiB for 40 bytes, up to 13 times the length for
    more, and never gives it back. `len()` and `sys.getsizeof()` do not show it.
    """
    return bytes(memoryview(body))
