"""Which partitions may go, and why. A pure decision; store.py carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from headwater.log.partitions import Extent
from headwater.settings import LogSettings

__all__ = ["Removal", "removals"]

HOUR = 3600.0


class Removal(NamedTuple):
    """A partition to remove: every reader has `passed` it, or it is over a limit that the user set."""

    extent: Extent
    reason: Literal["passed", "age", "bytes"]


def removals(
    closed: Sequence[Extent], positions: Iterable[int], settings: LogSettings, now: float
) -> list[Removal]:
    """What to remove, oldest first, of the closed partitions; the current one always stays.

    First what every reader has passed, then what holds only events older than T hours, then the oldest
    until what is left and one full current partition fit into B bytes. Removal is always from the old end,
    so what is kept has no holes. Without any reader nothing counts as passed.
    """
    lowest = min(positions, default=0)
    budget = settings.retention_bytes - settings.partition_bytes
    total = sum(extent.bytes for extent in closed)
    chosen: list[Removal] = []
    for extent in closed:
        if extent.end <= lowest:
            chosen.append(Removal(extent, "passed"))
        elif extent.last_at < now - settings.retention_hours * HOUR:
            chosen.append(Removal(extent, "age"))
        elif total > budget:
            chosen.append(Removal(extent, "bytes"))
        else:
            break
        total -= extent.bytes
    return chosen
