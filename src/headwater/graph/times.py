"""Times of the graph: whole microseconds since 1970, which SQLite compares and stores exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["iso", "micros"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def micros(text: object) -> int | None:
    """The microseconds of an RFC 3339 time, without an offset read as UTC; None for what is no time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        if ":60" not in text:
            return None
        return micros(text.replace(":60", ":59", 1))  # a leap second, which datetime does not know
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def iso(at: int | None) -> str | None:
    """The time as RFC 3339 in UTC; None for none."""
    if at is None:
        return None
    try:
        return (EPOCH + at * MICROSECOND).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return None
