"""Groups rejects by reason: reasons that differ only in quoted text and in numbers are one."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\b0x[0-9a-f]+\b|\d(?:[\w.,:+-]*\w)?", re.IGNORECASE)
MAX_PATTERN = 300  # characters
MAX_GROUPS = 1_000
OTHER = "all other reasons"


def reason_pattern(reason: str) -> str:
    """The reason with `…` in place of quoted text and of numbers."""
    return _VARIABLE.sub("…", reason)[:MAX_PATTERN]


class RejectGroup(NamedTuple):
    """Rejects of one stage and one reason; `example` is the latest of them."""

    stage: str
    pattern: str
    total: int
    first_at: float
    last_at: float
    example: str
    reason: str


class Grouping:
    """Counts rejects by stage and reason, in bounded memory (G8)."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], RejectGroup] = {}

    def add(self, stage: str, at: float | str, id: str, reason: str) -> None:
        """Count a reject."""
        when = _seconds(at)
        key = (stage, reason_pattern(reason))
        if key not in self._groups and len(self._groups) >= MAX_GROUPS:
            key = (stage, OTHER)
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = RejectGroup(*key, 1, when, when, id, reason)
        else:
            newest = when >= group.last_at
            self._groups[key] = group._replace(
                total=group.total + 1,
                first_at=min(group.first_at, when),
                last_at=max(group.last_at, when),
                example=id if newest else group.example,
                reason=reason if newest else group.reason,
            )

    def groups(self) -> list[RejectGroup]:
        """The groups, the latest first."""
        return sorted(self._groups.values(), key=lambda group: -group.last_at)


def _seconds(at: float | str) -> float:
    if not isinstance(at, str):
        return at
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0
