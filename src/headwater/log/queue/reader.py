"""A named reader: reads the events of the log in order, and records their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import apsw

from headwater.events import Event
from headwater.log.queue.commit_format import Commit
from headwater.log.queue.cursors import Cursor
from headwater.log.queue.partition_file import PartitionRange, PartitionReader
from headwater.log.queue.sqlite import is_damage
from headwater.system.crash_points import crash_point

if TYPE_CHECKING:
    from headwater.log.queue.log import Log

MAX_REPAIRS = 3  # in one read; a disk that damages what was just written is not repaired by another try


class Reader:
    """Reads the log in order for one consumer, such as an outlet. Used by one thread at a time.

    Raises LogFull or LogUnavailable if the disk fails; the caller should try again later.
    """

    def __init__(self, log: Log, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor
        self._opened: PartitionRange | None = None
        self._open: PartitionReader | None = None
        self._cached: Commit | None = None
        self._oldest = (0, 0.0)  # a position, and when it was received

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
        events = self._gather(position, max_events, max_bytes)
        crash_point("reader.after_read")
        return events

    def _gather(self, position: int, max_events: int, max_bytes: int) -> list[Event]:
        events: list[Event] = []
        room = max_bytes
        position = max(position, self._cursor.position)
        while position < (end := self._log.end):
            commit = self._commit_at(position)
            found = end if commit is None else commit.first
            if found > position:  # the commits in between are lost without a recorded reason: damage
                if events:
                    break
                self._lose(range(position, found))
                position = max(found, self._cursor.position)
                continue
            assert commit is not None
            in_order = self._cursor.is_in_order
            for i in range(position - commit.first, len(commit.bodies)):
                position = commit.first + i
                if not in_order and self._cursor.is_finished(position):
                    continue
                room -= len(commit.bodies[i])
                if events and (room < 0 or len(events) >= max_events):
                    return events
                events.append(Event(position, commit.received_at, commit.bodies[i]))
            position = commit.end
        return events

    def take(self, position: int, max_events: int, max_bytes: int) -> list[Event]:
        """Like `read`, and held: see `hold`."""
        while events := self.read(position, max_events, max_bytes):
            position = events[-1].position + 1
            if kept := self.hold(events):
                return kept
        return []

    def hold(self, events: Sequence[Event]) -> list[Event]:
        """Those of the events that the limits have not dropped since they were read.

        They are held until they are finished or released: if the limits remove their partition meanwhile,
        they are not counted as dropped, and their fate is what `finish` says (G3).
        """
        kept = set(self._cursor.hold([event.position for event in events]))
        return [event for event in events if event.position in kept] if len(kept) < len(events) else [*events]

    def release(self, positions: Iterable[int] | None = None) -> None:
        """Hold these (None: all) no more. Those that the log no longer has are dropped now."""
        try:
            lost = self._cursor.release(positions)
        except apsw.Error as error:  # memory has it, and the next commit writes it
            self._log.on_index_error(f"The cursor of {self.name} could not be stored", error)
        else:
            for outcome, events in lost.items():
                self._log.count_dropped(self.name, outcome.removeprefix("dropped_"), events)

    def is_finished(self, position: int) -> bool:
        """Whether the event at the position has its fate."""
        return self._cursor.is_finished(position)

    def finish(self, delivered: Iterable[int], rejected: Iterable[int] = ()) -> None:
        """Record finished positions, in any order, in one transaction that survives kill -9 (G4)."""
        try:
            self._cursor.finish({"delivered": delivered, "rejected": rejected})
        except apsw.Error as error:
            # The events were delivered, whatever the disk does. Delivery goes on; a restart before the next
            # successful commit sends these again (G4).
            self._log.on_index_error(f"The cursor of {self.name} could not be stored", error)

    def settle(self, source: str, settlements: Sequence[tuple[int, str, int]]) -> int:
        """Count what became of rejects: one that was replayed is delivered after all (G3).

        See `Cursor.settle`.
        """
        with self._log.classified():
            return self._cursor.settle(source, settlements)

    def lag_events(self) -> int:
        """Events in the log that are not finished."""
        return max(0, self._log.end - self._cursor.row.base - self._cursor.row.finished)

    def lag_seconds(self) -> float:
        """Age of the oldest unfinished event, whatever the wall clock does; 0 when there is none."""
        if self.lag_events() == 0:
            return 0.0
        if self._oldest[0] != (position := self.position):
            self._oldest = (position, self._log.received_at(position))
        return self._log.age_seconds(position, self._oldest[1])

    def close(self) -> None:
        """Close the open file; the next read opens one again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _commit_at(self, position: int) -> Commit | None:
        """The commit that holds the position, or the next one there is; None when none is left."""
        if self._cached is not None and self._cached.first <= position < self._cached.end:
            return self._cached
        repairs = 0
        while (partition := self._log.partitions.at(position)) is not None:
            try:
                commit = self._partition(partition).commit_at(position)
            except (apsw.Error, ValueError) as error:
                self.close()
                if self._log.partitions.is_gone(partition):
                    continue  # collected meanwhile; look again
                repairs += 1
                if repairs > MAX_REPAIRS or not (is_damage(error) or not partition.path.exists()):
                    raise self._log.classify(error) from error
                self._log.repair(partition, error)
                continue
            if commit is not None and commit.first < partition.end:
                self._cached = commit
                return commit
            position = partition.end  # the rest of this partition is missing
        return None

    def _partition(self, partition: PartitionRange) -> PartitionReader:
        # By identity: a repaired partition has the same path and is another file.
        if self._open is None or self._opened is not partition:
            self.close()
            self._open = self._log.partitions.open(partition)
            self._opened = partition
        return self._open

    def _lose(self, positions: range) -> None:
        if self._cursor.has_fates(positions):
            return  # finished, or in memory
        with self._log.classified():
            lost = self._cursor.drop("dropped_damage", positions)
        self._log.count_dropped(self.name, "damage", lost)
