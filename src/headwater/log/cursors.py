"""A named reader and its cursor: what it has finished, and what became of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import apsw

from headwater.events import Event
from headwater.faults import crash_point
from headwater.log.index import CursorRow, Index
from headwater.log.partitions import Commit, PartitionReader
from headwater.log.sqlite import is_damage

if TYPE_CHECKING:
    from headwater.log.store import Log

__all__ = ["Cursor", "Reader"]

BLOCK = 8192  # positions per bitmap: 1 KiB at most, so a commit rewrites little

Outcome = Literal["delivered", "rejected", "dropped_age", "dropped_bytes", "dropped_damage"]


class Cursor:
    """The lowest unfinished position, bitmaps of what is finished above it, and the counts of G3.

    Held under the index's lock, since collection moves cursors too.
    """

    def __init__(self, index: Index, row: CursorRow) -> None:
        self._index = index
        self.row = row
        self._blocks = index.blocks(row.reader)
        self._dirty: set[int] = set()

    @property
    def position(self) -> int:
        return self.row.position

    def finish(
        self, outcomes: dict[Outcome, Iterable[int] | range], *, durable: bool = False
    ) -> dict[str, int]:
        """One transaction: these positions have these outcomes. Those finished before count once only.

        Returns how many were new, per outcome.
        """
        with self._index.transaction(durable=durable):
            new: dict[str, int] = {outcome: self._mark(positions) for outcome, positions in outcomes.items()}
            for outcome, count in new.items():
                setattr(self.row, outcome, getattr(self.row, outcome) + count)
            self._advance()
            for block in self._dirty & self._blocks.keys():
                self._index.put_block(self.row.reader, block, self._blocks[block])
            self._index.put(self.row)
            crash_point("cursor.before_commit")
        # Only now: where the disk refused, memory is ahead of the file, and the next commit carries it all.
        self._dirty.clear()
        crash_point("cursor.after_commit")
        return new

    def recount(self, delivered: int, rejected: int) -> None:
        with self._index.transaction(durable=True):
            self.row.delivered += delivered
            self.row.rejected += rejected
            self._index.put(self.row)

    def is_finished(self, position: int) -> bool:
        if position < self.row.position:
            return True
        bits = self._blocks.get(position // BLOCK)
        return bits is not None and bool(bits >> position % BLOCK & 1)

    @property
    def is_in_order(self) -> bool:
        """Nothing is finished above the position: the common case, and quick to read for."""
        return not self._blocks

    def _mark(self, positions: Iterable[int]) -> int:
        masks: dict[int, int] = {}
        low = self.row.position
        if isinstance(positions, range) and positions.step == 1:
            start = max(positions.start, low)
            while start < positions.stop:
                block, bit = divmod(start, BLOCK)
                stop = min(positions.stop, (block + 1) * BLOCK)
                masks[block] = ((1 << (stop - start)) - 1) << bit
                start = stop
        else:
            for position in positions:
                if position >= low:
                    block, bit = divmod(position, BLOCK)
                    masks[block] = masks.get(block, 0) | 1 << bit
        count = 0
        for block, mask in masks.items():
            before = self._blocks.get(block, 0)
            count += (mask & ~before).bit_count()
            self._blocks[block] = before | mask
            self._dirty.add(block)
        return count

    def _advance(self) -> None:
        """Move the position over everything finished, and forget the bitmaps below it."""
        while bits := self._blocks.get(self.row.position // BLOCK):
            ahead = bits >> self.row.position % BLOCK
            run = (~ahead & (ahead + 1)).bit_length() - 1  # trailing ones
            self.row.position += run
            if run == 0 or self.row.position % BLOCK:
                break
        current = self.row.position // BLOCK
        stale = [block for block in self._blocks if block < current]
        for block in stale:
            del self._blocks[block]
        if (bits := self._blocks.get(current)) is not None and not bits >> self.row.position % BLOCK:
            del self._blocks[current]
            stale.append(current)
        if stale:
            self._index.drop_blocks(self.row.reader, max(stale) + 1)


class Reader:
    """Reads the log for one outlet, in order. Used by one thread at a time."""

    def __init__(self, log: Log, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor
        self._open: PartitionReader | None = None
        self._cached: Commit | None = None
        self._oldest: tuple[int, float] | None = None  # position and time of an event seen, for the lag

    @property
    def name(self) -> str:
        return self._cursor.row.reader

    @property
    def position(self) -> int:
        """The lowest unfinished position."""
        return self._cursor.position

    def read(self, position: int, max_events: int, max_bytes: int) -> list[Event]:
        """Events at or after `position` in order, without those finished before; empty: none is there yet.

        Never empty while there is one, however large it is. Memory is bounded by `max_bytes` and one
        commit, whatever the backlog (G8).
        """
        events: list[Event] = []
        room = max_bytes
        position = max(position, self._cursor.position)
        while position < self._log.end:
            commit = self._commit_at(position)
            if commit is None:
                break
            if commit.first > position:  # what lay between is gone, and nobody said why: damage
                if events:
                    break
                self._lose(range(position, commit.first))
                position = commit.first
            in_order = self._cursor.is_in_order
            for i in range(position - commit.first, len(commit.bodies)):
                position = commit.first + i
                if not in_order and self._cursor.is_finished(position):
                    continue
                room -= len(commit.bodies[i])
                if events and (room < 0 or len(events) >= max_events):
                    return self._seen(events)
                events.append(Event(position, commit.received_at, commit.bodies[i]))
            position = commit.end
        crash_point("reader.after_read")
        return self._seen(events)

    def finish(self, delivered: Iterable[int], rejected: Iterable[int] = ()) -> None:
        """These positions are done, in any order; one transaction that survives kill -9 (G4)."""
        try:
            self._cursor.finish({"delivered": delivered, "rejected": rejected})
        except apsw.Error as error:
            # The events are delivered, disk or no disk. Delivery goes on; a restart before the next good
            # commit sends these again (G4).
            self._log.trouble(f"The cursor of {self.name} could not be stored", error)

    def recount(self, *, delivered: int = 0, rejected: int = 0) -> None:
        """Move events between the counts: a reject that was replayed is delivered after all (G3)."""
        self._cursor.recount(delivered, rejected)

    def lag_events(self) -> int:
        """Events in the log that are not finished."""
        return max(0, self._log.end - self._cursor.row.base - self._cursor.row.finished)

    def lag_seconds(self) -> float:
        """Age of the oldest unfinished event that was seen; 0 when there is none. Never negative."""
        oldest = self._oldest
        if oldest is None or self.lag_events() == 0:
            return 0.0
        return max(0.0, self._log.clock.now() - oldest[1])

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _seen(self, events: list[Event]) -> list[Event]:
        if events and (self._oldest is None or self._oldest[0] < self._cursor.position):
            self._oldest = (events[0].position, events[0].received_at)
        return events

    def _commit_at(self, position: int) -> Commit | None:
        """The commit that holds the position, or the next one there is."""
        if self._cached is not None and self._cached.first <= position < self._cached.end:
            return self._cached
        for _ in range(3):
            extent = self._log.extent_at(position)
            if extent is None:
                return None
            try:
                if self._open is None or self._open.path != extent.path:
                    self.close()
                    self._open = PartitionReader(extent.path, vfs=self._log.vfs)
                for commit in self._open.commits(position):
                    self._cached = commit
                    return commit
            except Exception as error:
                self.close()
                if self._log.is_gone(extent):
                    continue  # collected meanwhile; look again
                if not is_damage(error):
                    raise self._log.classify(error) from error
                self._log.repair(extent, error)
                continue
            position = extent.end  # the rest of this partition is missing
        return None

    def _lose(self, positions: range) -> None:
        lost = self._cursor.finish({"dropped_damage": positions}, durable=True)["dropped_damage"]
        self._log.count_dropped(self.name, "damage", lost)
