"""Reads an event's time, in any of the usual forms, as nanoseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

_NS = 1_000_000_000
_UNITS = (_NS, 1_000_000, 1_000, 1)  # nanoseconds in a second, a millisecond, a microsecond, a nanosecond
# Counts of two units never fall into this span at once, so a count is of one unit only.
_EARLIEST, _LATEST = 10**17, 5 * 10**18  # March 1973, June 2128
_LAST = 2**63 - 1  # nanoseconds of the receivers are signed 64-bit numbers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNT = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
_FRACTION = re.compile(r"[.,]([0-9]+)")


def event_nanoseconds(value: Any) -> int | None:
    """The time in nanoseconds since 1970; None if the value is not a time.

    A time is a count of seconds, milliseconds, microseconds or nanoseconds, as a number or as digits in text,
    or ISO 8601 text; without an offset that is UTC.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _counted(Decimal(value)) if value.bit_length() < 64 else None
    if isinstance(value, float):
        return _counted(Decimal(repr(value))) if 0 < value < _LATEST else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _COUNT.fullmatch(text) and (counted := _counted(Decimal(text))) is not None:
        return counted
    return _written(text)


def _counted(count: Decimal) -> int | None:
    for unit in _UNITS:
        if _EARLIEST < (nanoseconds := count * unit) < _LATEST:
            return int(nanoseconds)
    return None


def _written(text: str) -> int | None:
    fraction = _FRACTION.search(text)  # `datetime` cuts it to microseconds
    whole = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        moment = datetime.fromisoformat(whole.upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    nanoseconds = seconds * _NS + (int(fraction.group(1)[:9].ljust(9, "0")) if fraction else 0)
    return nanoseconds if 0 <= nanoseconds <= _LAST else None
