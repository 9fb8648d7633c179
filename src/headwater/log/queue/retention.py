"""Retention: which closed partitions are removed, and why.

It only chooses: `Log._collect` removes what is chosen, and `partitions.py` rotates and removes the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from headwater.log.queue.partitions import HOUR_SECONDS
from headwater.settings import LogSettings


class Stretch(Protocol):
    """Positions that are kept in one file, with its size and the times of receipt."""

    first: int
    end: int
    bytes: int
    first_at: float
    last_at: float


S = TypeVar("S", bound=Stretch)


class Removal(NamedTuple, Generic[S]):
    """A partition to remove: every reader has `passed` it, or it is over a limit that the user set."""

    partition: S
    reason: Literal["passed", "age", "bytes"]


def removals(
    closed: Sequence[S], positions: Iterable[int], settings: LogSettings, now: float
) -> list[Removal[S]]:
    """The closed partitions to remove, oldest first; the current one always stays.

    First those that every reader has passed, then those whose events are all older than `retention_hours`,
    then the oldest until the rest and one full current partition fit into `retention_bytes`. Removal is
    always from the old end, so the kept positions have no holes. Without a reader no partition is passed.
    """
    lowest = min(positions, default=0)
    budget = settings.retention_bytes - settings.partition_bytes
    total = sum(partition.bytes for partition in closed)
    chosen: list[Removal[S]] = []
    for partition, newest_at in zip(closed, latest_times(closed), strict=True):
        if partition.end <= lowest:
            chosen.append(Removal(partition, "passed"))
        elif newest_at < now - settings.retention_hours * HOUR_SECONDS:
            chosen.append(Removal(partition, "age"))
        elif total > budget:
            chosen.append(Removal(partition, "bytes"))
        else:
            break
        total -= partition.bytes
    return chosen


def latest_times(ranges: Sequence[S]) -> list[float]:
    """When the last event of each partition was received at the latest.

    What a wrong clock dated in the future is not newer than the partitions that follow. One without events
    has no time: a process died, or the disk failed, between its creation and its first commit.
    """
    times: list[float] = []
    latest = math.inf
    for partition in reversed(ranges):
        if partition.end > partition.first:
            times.append(latest := min(latest, partition.last_at))
            latest = min(latest, partition.first_at)
        else:
            times.append(latest)
    return times[::-1]
