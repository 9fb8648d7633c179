"""Ranges of positions of a queue that are loaded together, and the ranges that a ledger has already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.destinations.table import ROW

_QUEUE, _NUMBER = 32, 16  # digits of the parts of a load id


@dataclass(frozen=True)
class PositionRange:
    """Positions of a queue, from `first` up to and without `end`."""

    queue: str
    destination_id: str
    first: int
    end: int

    @property
    def name(self) -> str:
        # with the queue's identity: the positions of a queue that was removed and created again start at 1
        return f"queue.dst={self.destination_id}/{self.queue[:8]}"

    def load_id(self, table: str) -> str:
        """The id of its load into a table: queue, end, first and a digest of the table, hexadecimal.

        The numbers can be read back, and ids of one queue are in the order of their ends. So the ledger shows
        which ranges of a queue are loaded (`ledger_id_range`), even if the cursor is lost (G5).
        """
        digest = hashlib.sha256(f"{self.destination_id}\0{table}".encode()).hexdigest()[:_NUMBER]
        return f"{_digest(self.queue)}{self.end:0{_NUMBER}x}{self.first:0{_NUMBER}x}{digest}"

    def halves(self) -> tuple[PositionRange, PositionRange]:
        middle = (self.first + self.end) // 2
        return (
            PositionRange(self.queue, self.destination_id, self.first, middle),
            PositionRange(self.queue, self.destination_id, middle, self.end),
        )


def ledger_id_range(queue: str, position: int) -> tuple[str, str]:
    """The bounds of the ids of loads that contain this position or later ones."""
    return f"{_digest(queue)}{position + 1:0{_NUMBER}x}", f"{_digest(queue)}g"


class LoadedRanges:
    """The loads of a queue that a ledger has.

    A cursor that was lost, or restored from a copy, is behind the ledger, and later batches have other
    boundaries: rows that are stored already are then left out by their positions.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = set(ids)
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for id in sorted(self._ids, key=_first):
            table, first, end = id[_QUEUE + 2 * _NUMBER :], _first(id), _end(id)
            ranges = self._ranges.setdefault(table, [])
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
            else:
                ranges.append((first, end))

    def already_loaded_sql(self, wanted: PositionRange, table: str) -> str:
        """SQL for the rows of a range that the table has already; empty: none, or the very same load.

        The same load is left to the destination, which repeats its first answer.
        """
        id = wanted.load_id(table)
        if id in self._ids:
            return ""
        ranges = self._ranges.get(id[_QUEUE + 2 * _NUMBER :], [])
        return " OR ".join(
            f"({ROW} >= {first} AND {ROW} < {end})"
            for first, end in ranges
            if first < wanted.end and end > wanted.first
        )


def _digest(queue: str) -> str:
    return hashlib.sha256(queue.encode()).hexdigest()[:_QUEUE]


def _end(id: str) -> int:
    return int(id[_QUEUE : _QUEUE + _NUMBER], 16)


def _first(id: str) -> int:
    return int(id[_QUEUE + _NUMBER : _QUEUE + 2 * _NUMBER], 16)
