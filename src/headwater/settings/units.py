"""Sizes and times as people write them: `4GiB` where a setting counts bytes, `24h` where it counts hours."""

from __future__ import annotations

import re
from decimal import Decimal

_SIZES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}
_TIMES = {"seconds": "s", "minutes": "m", "hours": "h", "days": "d"}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]+)", re.ASCII)


def unit_of(setting: str) -> str:
    """What a setting counts, by the end of its name: `bytes`, `seconds`, …; empty if it has no unit."""
    found = setting.rpartition("_")[2]
    return found if found == "bytes" or found in _TIMES else ""


def in_its_unit(setting: str, text: str) -> int | float | None:
    """The number that a text means for a setting: 24 for `1d` of `retention_hours`; None if it means none."""
    unit, match = unit_of(setting), _QUANTITY.fullmatch(text.strip())
    if not unit or match is None:
        return None
    number = Decimal(match[1])
    if unit == "bytes":
        if match[2] not in _SIZES:
            return None
        found = number * _SIZES[match[2]]
    else:
        if match[2] not in _SECONDS:
            return None
        found = number * _SECONDS[match[2]] / _SECONDS[_TIMES[unit]]
    return int(found) if found == int(found) else float(found)


def examples(setting: str) -> str:
    """What a text of a setting may look like."""
    return "64MiB or 4GB" if unit_of(setting) == "bytes" else "30s, 5m, 24h or 7d"
