"""Typed JSON decoders that several threads may construct at the same time."""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.Lock()


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of a type. msgspec crashes if two threads prepare the same type at the same time."""
    with _lock:
        return msgspec.json.Decoder(kind)
