"""Typed reads of JSON of unknown shape, and RFC 3339 times as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from headwater.graph.store.ids import shortened

MAX_COUNT = 2**63 - 1  # the largest integer of SQLite
MAX_TIME = 100  # characters
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_EMPTY: dict[str, Any] = {}
# `//user:password@host`, and parameters of URIs such as `?password=…`, also in JSON text.
_USER_PASSWORD = re.compile(rb"(//[^\s\"'/@:?#]*:)[^\s\"'/@]+@")
_PASSWORD_PARAMETER = re.compile(
    rb"([?&;](?:password|passwd|pwd|secret|token|access_token|api_?key|sig|signature)=)[^&;\s\"'\\]+",
    re.IGNORECASE,
)


def mapping(value: object) -> dict[str, Any]:
    """The value if it is an object; an empty object otherwise."""
    return value if isinstance(value, dict) else _EMPTY


def items(value: object) -> Iterator[dict[str, Any]]:
    """The objects of an array."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text(value: object) -> str:
    """The text, cut to the longest name that is stored; empty for any other value."""
    return shortened(value) if isinstance(value, str) else ""


def count(value: object) -> int:
    """A whole number that is not negative; -1 for any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return -1


def identity(value: object) -> tuple[str, str] | None:
    """Namespace and name of a dataset or job, without passwords; None where one of them is missing."""
    if not isinstance(value, dict):
        return None
    namespace, name = value.get("namespace"), value.get("name")
    if not isinstance(namespace, str) or not isinstance(name, str):
        return None
    return shortened(masked(namespace)), shortened(masked(name))


def masked(text: str) -> str:
    """The text without the passwords in its URIs."""
    if "@" not in text and "=" not in text:
        return text
    return _masked(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def _masked(text: bytes) -> bytes:
    if b"://" in text or b"jdbc:" in text:
        if b"@" in text:
            text = _USER_PASSWORD.sub(rb"\1***@", text)
        if b"=" in text:
            text = _PASSWORD_PARAMETER.sub(rb"\1***", text)
    return text


def canonical(value: object, max_bytes: int) -> bytes:
    """JSON with sorted keys, so that equal values have equal bytes; a note for a value too large."""
    try:
        encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested too deeply
        return b'{"_omitted":"it is nested too deeply"}'
    if len(encoded) > max_bytes:
        return b'{"_omitted":"it has %d bytes, more than graph.max_facet_bytes"}' % len(encoded)
    return _masked(encoded)


def micros(text: object) -> int | None:
    """The microseconds of an RFC 3339 time, which is UTC without an offset; None for an invalid time."""
    if not isinstance(text, str):
        return None
    if len(text) > MAX_TIME:
        return None
    for spelling in (text, text.replace(":60", ":59")):  # datetime rejects a leap second
        try:
            moment = datetime.fromisoformat(spelling.upper())
            break
        except ValueError:
            continue
    else:
        return None
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def iso(at: int | None) -> str | None:
    """The time as RFC 3339 in UTC; None without a time."""
    if at is None:
        return None
    try:
        return (EPOCH + at * MICROSECOND).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return None
