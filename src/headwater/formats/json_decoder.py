"""Typed JSON decoders that several threads may construct at the same time.

msgspec prepares a Struct when it is first decoded, and the process crashes if two threads do that at once.
So Structs are decoded by `json_decoder`, and not by `msgspec.json.decode(…, type=…)`.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.Lock()


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of a type, which is prepared by one thread at a time."""
    with _lock:
        return msgspec.json.Decoder(kind)
