"""Ranges of positions of a queue that are loaded together, and the ranges that a ledger has already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headwater.destinations.base import NUMBER_DIGITS, SOURCE_DIGITS, StreamLoadId, parse_stream_id
from headwater.destinations.table import ROW


@dataclass(frozen=True)
class PositionRange:
    """Positions of a queue, from `first` up to and without `end`."""

    queue: str
    destination_id: str
    first: int
    end: int
    epoch: int = 0
    """Which opening of the queue gave out the positions; 0 for those of earlier releases, and of Kafka."""

    @property
    def key(self) -> str:
        """The name of the positions in the ledger: no other events have had them under this name."""
        return f"{self.queue}/{self.epoch:016x}" if self.epoch else self.queue

    @property
    def name(self) -> str:
        # with the queue's identity: the positions of a queue that was removed and created again start at 1
        return f"queue.dst={self.destination_id}/{self.queue[:8]}"

    def load_id(self, table: str) -> str:
        """The id of its load into a table.

        It contains the positions, so the ledger shows which ranges of a queue are loaded (`ledger_id_range`),
        even if the cursor is lost (G5).
        """
        digest = hashlib.sha256(f"{self.destination_id}\0{table}".encode()).hexdigest()[:NUMBER_DIGITS]
        return str(StreamLoadId(_digest(self.key), self.end, self.first, digest))

    def halves(self) -> tuple[PositionRange, PositionRange]:
        middle = (self.first + self.end) // 2
        return replace(self, end=middle), replace(self, first=middle)


def ledger_id_range(key: str, position: int) -> tuple[str, str]:
    """The bounds of the ids of loads that contain this position or later ones."""
    return f"{_digest(key)}{position + 1:0{NUMBER_DIGITS}x}", f"{_digest(key)}g"


class LoadedRanges:
    """The loads of a queue that a ledger has.

    A cursor that was lost, or restored from a copy, is behind the ledger, and later batches have other
    boundaries: rows that are stored already are then left out by their positions.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = set(ids)
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        found = [parts for id in self._ids if (parts := parse_stream_id(id)) is not None]
        for _, end, first, table in sorted(found, key=lambda parts: parts.first):
            ranges = self._ranges.setdefault(table, [])
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
            else:
                ranges.append((first, end))

    def already_loaded(self, wanted: PositionRange, table: str) -> list[tuple[int, int]]:
        """The positions around a range that the table has already; none also for the very same load.

        The same load is left to the destination, which repeats its first answer.
        """
        id = wanted.load_id(table)
        if id in self._ids:
            return []
        ranges = self._ranges.get(id[-NUMBER_DIGITS:], [])
        return [(first, end) for first, end in ranges if first < wanted.end and end > wanted.first]

    def of_any_table(self) -> list[tuple[int, int]]:
        """The positions that any table has, as sorted ranges apart from each other."""
        found: list[tuple[int, int]] = []
        for first, end in sorted(each for ranges in self._ranges.values() for each in ranges):
            if found and first <= found[-1][1]:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((first, end))
        return found

    def already_loaded_sql(self, wanted: PositionRange, table: str) -> str:
        """SQL for the rows of a range that the table has already; empty: none, or the very same load."""
        found = self.already_loaded(wanted, table)
        return " OR ".join(f"({ROW} >= {first} AND {ROW} < {end})" for first, end in found)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:SOURCE_DIGITS]
