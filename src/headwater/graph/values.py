"""Reading JSON that nobody vouches for: a value of the wrong kind counts as absent (G12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from headwater.graph.ids import shortened

__all__ = ["canonical", "count", "identity", "items", "mapping", "text"]

MAX_COUNT = 2**63 - 1  # what SQLite's integers hold
_NOTHING: dict[str, Any] = {}


def mapping(value: object) -> dict[str, Any]:
    """The object, else an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def items(value: object) -> Iterator[dict[str, Any]]:
    """The objects of an array."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text(value: object) -> str:
    """The text, cut to what a name may be; else empty."""
    return shortened(value) if isinstance(value, str) else ""


def count(value: object) -> int:
    """A whole number that is not negative; -1 for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return -1


def identity(value: object) -> tuple[str, str] | None:
    """Namespace and name of a dataset or job; None where one of them is missing."""
    if not isinstance(value, dict):
        return None
    namespace, name = value.get("namespace"), value.get("name")
    if not isinstance(namespace, str) or not isinstance(name, str):
        return None
    return shortened(namespace), shortened(name)


def canonical(value: object, max_bytes: int) -> bytes:
    """JSON with sorted keys, so that equal values have equal bytes; a remark in place of one too large."""
    try:
        encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested too deeply
        return b'{"_omitted":"it is nested too deeply"}'
    if len(encoded) > max_bytes:
        return b'{"_omitted":"it has %d bytes, more than graph.max_facet_bytes"}' % len(encoded)
    return encoded
