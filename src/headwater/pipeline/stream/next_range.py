"""Which range of a source is loaded next, as the cursor, its plan and the epochs of the queue say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from headwater.log.queue.commit_format import Commit
from headwater.log.streams import Planned, StreamCursor
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange, ledger_id_range

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 62


class Positions(Protocol):
    """What a source must know about its positions."""

    def newest(self) -> int:
        """The position after the last event."""

    def read(self, first: int, end: int) -> Iterable[Commit]:
        """The events from one position up to another, without those that were removed."""

    def agreed(self, cursor: StreamCursor) -> int:
        """The position up to which the source has the events that the cursor is about."""


class NextRange(NamedTuple):
    """Events that are loaded together. `epoch` is None if the source has none of them any more."""

    events: list[Commit]
    first: int
    end: int
    epoch: int | None

    def positions(self, cursor: StreamCursor, destination_id: str) -> PositionRange:
        """The range under the name by which the ledger knows its loads."""
        return PositionRange(cursor.queue, destination_id, self.first, self.end, self.epoch or 0)


def limit_bytes(events: Iterable[Commit], end: int, max_bytes: int) -> tuple[list[Commit], int]:
    """Events of one epoch and at most `max_bytes` (G8), but at least one; and where they end."""
    taken, size = list[Commit](), 0
    for commit in events:
        if taken and commit.epoch != taken[0].epoch:
            return taken, commit.first
        for place, body in enumerate(commit.bodies):
            size += len(body)
            if size > max_bytes and (taken or place):
                if place:
                    part = Commit(commit.first, commit.received_at, commit.bodies[:place], commit.epoch)
                    taken.append(part)
                return taken, commit.first + place
        taken.append(commit)
    return taken, end


def step_back(source: Positions, cursor: StreamCursor) -> bool:
    """Move a cursor back that is about other events than the source has; returns whether it was."""
    agreed = min(source.agreed(cursor), cursor.position)
    if agreed == cursor.position:
        return False
    logger.error(
        "The queue is an earlier copy than its cursor: position %d is the first that has another event or "
        "none, and the cursor was at %d. It goes back there; the ledger knows the rows that are stored.",
        agreed,
        cursor.position,
    )
    cursor.step_back(agreed)
    return True


def next_range(source: Positions, cursor: StreamCursor, max_events: int, max_bytes: int) -> NextRange | None:
    """The range that was planned, or else the next one; None if there is no event."""
    first = cursor.position
    if (planned := cursor.planned) is not None and planned.end > first:
        # a planned range keeps its size, even if the setting has changed
        events, end = limit_bytes(source.read(first, planned.end), planned.end, NO_LIMIT)
        epoch = events[0].epoch if events else None
        if end == planned.end and epoch in (planned.epoch, None):
            logger.info("Positions %d to %d are loaded again.", first, end - 1)
            return NextRange(events, first, end, epoch)
        logger.warning("The plan of positions %d to %d is about other events.", first, planned.end - 1)
    cursor.planned = None
    end = min(source.newest(), first + max_events)
    if end <= first:
        return None
    events, end = limit_bytes(source.read(first, end), end, max_bytes)
    return NextRange(events, first, end, events[0].epoch if events else None)


def plan(cursor: StreamCursor, found: NextRange, template: str = "") -> Planned:
    """The plan of the range; the caller saves the cursor before it loads the first event."""
    if cursor.planned is None:
        cursor.planned = Planned(found.end, epoch=found.epoch or 0, template=template)
    return cursor.planned


class KnownLoads:
    """The loads that the ledger has, by epoch; asked once for each."""

    def __init__(self, loaded_between: Callable[[str, str], Iterable[str]]) -> None:
        self._loaded_between = loaded_between
        self._key = ""
        self._ranges = LoadedRanges()

    def of(self, positions: PositionRange) -> LoadedRanges:
        """The loads of the epoch that contain positions of the range or later ones."""
        if self._key != positions.key:
            bounds = ledger_id_range(positions.key, positions.first)
            self._ranges = LoadedRanges(self._loaded_between(*bounds))
            self._key = positions.key
        return self._ranges

    def forget(self) -> None:
        """Ask again: another process may have used the ledger meanwhile."""
        self._key = ""
