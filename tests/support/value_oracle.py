"""What a stored row must contain, by plain Python alone: no code of Headwater decides here.

A value is stored if what is read back is the value: the same number, text or instant. Otherwise its bytes are
in `_unmapped_data`. `problem` names a value that is in neither place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["Number", "Row", "instant", "parse", "problem", "problems_of_object"]

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]*)?)?"
    r"(?: ?(Z|UTC|[+-][0-9]{1,2}(?::?[0-9]{2})?))?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Number:
    """A number of JSON as it is written."""

    text: str


class Repeated(ValueError):
    """An object of `_unmapped_data` repeats a key."""


def parse(text: str) -> Any:
    """JSON with its numbers as they are written; objects are tuples of pairs, in order."""
    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=_refuse, object_pairs_hook=tuple_of_pairs
    )


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


class Pairs(tuple[tuple[str, Any], ...]):
    """An object."""

    __slots__ = ()


def tuple_of_pairs(pairs: list[tuple[str, Any]]) -> Pairs:
    return Pairs(pairs)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, for every year of the Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def instant(text: str) -> Fraction | None:
    """Microseconds since 1970, exactly; None for a text that is no moment."""
    found = _INSTANT.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    lengths = (
        31,
        29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28,
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    )
    if not (
        1 <= month <= 12 and 1 <= day <= lengths[month - 1] and hour < 24 and minute < 60 and second < 60
    ):
        return None
    fraction = Fraction(Decimal(f"0{found[7]}0")) if found[7] else Fraction(0)
    zone, offset = (found[8] or "Z").upper(), 0
    if zone not in ("Z", "UTC"):
        digits = zone[1:].replace(":", "")
        hours, minutes = int(digits[:2]), int(digits[2:] or 0)
        offset = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    seconds = _days(year, month, day) * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
    return (seconds + fraction) * 1_000_000


def _number(value: Any) -> Fraction | Decimal | None:
    return Decimal(value.text) if isinstance(value, Number) else None


def is_stored(kind: str, value: Any, token: str, stored: Any) -> bool:
    """Whether what a column of the kind returns is the value."""
    match kind:
        case "text":
            if isinstance(value, str):
                return bool(stored == value)
            if isinstance(value, Number | bool):
                return bool(stored == token.strip())
            try:
                return bool(parse(stored) == value)
            except ValueError:
                return False
        case "int" | "float":
            if isinstance(value, bool):
                return bool(stored == int(value))
            if isinstance(value, str):
                form = _INTEGER if kind == "int" else _DECIMAL
                return form.fullmatch(value) is not None and _as_decimal(stored) == Decimal(value)
            return isinstance(value, Number) and _as_decimal(stored) == Decimal(value.text)
        case "bool":
            if isinstance(value, str):
                return value == ("true" if stored else "false")
            return isinstance(value, bool) and bool(stored) is value
        case "time":
            return isinstance(value, str) and instant(value) == Fraction(stored)
    raise ValueError(kind)


def _as_decimal(stored: Any) -> Decimal:
    return (
        stored
        if isinstance(stored, Decimal)
        else Decimal(stored if isinstance(stored, str) else repr(stored))
    )


def same_json(value: Any, kept: Any, *, exact: bool) -> bool:
    """Whether a value of `_unmapped_data` is the value; not `exact`: a number may be written otherwise."""
    if isinstance(value, Number) and isinstance(kept, Number):
        return value == kept or (not exact and Decimal(value.text) == Decimal(kept.text))
    if isinstance(value, list) and isinstance(kept, list):
        return len(value) == len(kept) and all(
            same_json(a, b, exact=exact) for a, b in zip(value, kept, strict=True)
        )
    if isinstance(value, Pairs) and isinstance(kept, Pairs):
        a, b = dict(value), dict(kept)  # of a repeated key the last counts
        return a.keys() == b.keys() and all(same_json(a[name], b[name], exact=exact) for name in a)
    if not exact and isinstance(value, str) and isinstance(kept, Number):
        # the text is the number's own form, and it became one before the product could not hold it
        return _DECIMAL.fullmatch(value) is not None and Decimal(value) == Decimal(kept.text)
    if not exact and isinstance(kept, str) and kept != value:
        try:
            return same_json(value, parse(kept), exact=True)
        except ValueError:
            return False
    return type(value) is type(kept) and bool(value == kept)


@dataclass
class Row:
    """What a product returns of one event: columns by name, `_unmapped_data` as text."""

    columns: Mapping[str, Any]
    unmapped: str | None
    keeps_bytes: bool
    """Whether `_unmapped_data` is text, and not a jsonb."""

    def entries(self) -> dict[str, Any]:
        """The values of `_unmapped_data`; Repeated where one would hide another."""
        if self.unmapped is None:
            return {}
        found = parse(self.unmapped)
        if not isinstance(found, Pairs):
            raise Repeated(f"_unmapped_data is no object: {self.unmapped}")
        if len(dict(found)) < len(found):
            raise Repeated(f"_unmapped_data repeats a key: {self.unmapped}")
        return dict(found)


def problem(kind: str, name: str, token: str, row: Row, *, is_typed: bool = False) -> str:
    """What is wrong with a value; empty if it is stored, or aside.

    `is_typed`: the product was given a number or an instant, and not the text of it.
    """
    value, stored = parse(token), row.columns.get(name)
    if stored is not None and is_stored(kind, value, token, stored):
        return ""
    entries = row.entries()
    for key in (name, f"/{name}"):
        is_same = key in entries and same_json(value, entries[key], exact=row.keeps_bytes and not is_typed)
        if is_same or (is_typed and _is_same_instant(value, entries.get(key))):
            # a moment with more digits than the column keeps may be in both, cut there and whole aside
            may_have_both = stored is None or (kind == "time" and _is_cut(value, stored))
            return "" if may_have_both else f"{name}: {token} is aside, and {stored!r} in its column"
    if value is None:
        return "" if stored is None else f"{name}: null became {stored!r}"
    return f"{name}: {token} is {stored!r}, and _unmapped_data {row.unmapped}"


def _is_cut(value: Any, stored: Any) -> bool:
    at = instant(value) if isinstance(value, str) else None
    return at is not None and 0 <= at - Fraction(stored) < 1


def _is_same_instant(value: Any, kept: Any) -> bool:
    is_text = isinstance(value, str) and isinstance(kept, str)
    return is_text and instant(value) is not None and instant(value) == instant(kept)


def problems_of_object(
    kinds: Mapping[str, str], event: str, row: Row, *, is_widened: bool = False
) -> list[str]:
    """What is wrong with the values of an event, whose objects become columns `a_b`.

    `is_widened`: a column may have become text after the value was stored as an instant.
    """
    found = []
    for path, value in _leaves(parse(event), ()):
        name = "_".join(path)
        stored = row.columns.get(name)
        kind = kinds.get(name)
        text = (
            value.text if isinstance(value, Number) else json.dumps(value) if isinstance(value, bool) else ""
        )
        if stored is not None and kind is not None and is_stored(kind, value, text, stored):
            continue
        if value is None or _is_aside(path, value, row) or (is_widened and _is_same_instant(value, stored)):
            continue
        found.append(f"{name}: {value!r} is {stored!r}, and _unmapped_data {row.unmapped}")
    return found


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, Pairs):
        return [(path, value)]
    return [leaf for name, child in value for leaf in _leaves(child, (*path, name))]


def _is_aside(path: tuple[str, ...], value: Any, row: Row) -> bool:
    """Whether `_unmapped_data` has a value under its column, its pointer, or within an object above it."""
    exact = row.keeps_bytes
    for key, kept in row.entries().items():
        for length in range(len(path), 0, -1):
            above = path[:length]
            names = {"_".join(above), "/" + "/".join(above)}
            # the loser of a shared name has a suffix to its key
            if key not in names and not any(key.startswith(f"{name}~") for name in names):
                continue
            at = _find(kept, path[length:])
            if at is not None and same_json(value, at, exact=exact):
                return True
    return False


def _find(kept: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(kept, str):
            try:
                kept = parse(kept)
            except ValueError:
                return None
        if not isinstance(kept, Pairs):
            return None
        kept = dict(kept).get(part)
    return kept
