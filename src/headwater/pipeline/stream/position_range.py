"""A stretch: positions of a queue that are loaded together; and what a ledger has of a queue already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.destinations.table import ROW

__all__ = ["Arrived", "Stretch", "ids_beyond"]

_QUEUE, _NUMBER = 32, 16  # letters of the parts of a load's id


@dataclass(frozen=True)
class Stretch:
    """Positions of a queue; the origin of the rows that they become."""

    queue: str
    destination_id: str
    first: int
    end: int

    @property
    def name(self) -> str:
        # with the queue's own name: positions of a queue that is made anew begin at 1 again
        return f"queue.dst={self.destination_id}/{self.queue[:8]}"

    def identity(self) -> str:
        return f"{self.queue}\0{self.first}\0{self.end}"

    def load_id(self, table: str) -> str:
        """The id of its load into a table: queue, end, first and a digest of the table, hexadecimal.

        The numbers can be read back, and ids of one queue are in the order of their ends. So a ledger can be
        asked what of a queue has arrived (`ids_beyond`), whatever became of the cursor (G5).
        """
        digest = hashlib.sha256(f"{self.destination_id}\0{table}".encode()).hexdigest()[:_NUMBER]
        return f"{_digest(self.queue)}{self.end:0{_NUMBER}x}{self.first:0{_NUMBER}x}{digest}"

    def halves(self) -> tuple[Stretch, Stretch]:
        middle = (self.first + self.end) // 2
        return (
            Stretch(self.queue, self.destination_id, self.first, middle),
            Stretch(self.queue, self.destination_id, middle, self.end),
        )


def ids_beyond(queue: str, position: int) -> tuple[str, str]:
    """Between which texts the ids of loads lie that brought positions from this one on."""
    return f"{_digest(queue)}{position + 1:0{_NUMBER}x}", f"{_digest(queue)}g"


class Arrived:
    """Loads of a queue that a ledger has. With a cursor that is whole it knows of none beyond the planned.

    A cursor that was lost, or restored from a copy, is behind the ledger, and the batches that follow are not
    cut where the earlier ones were: then rows that are there must be left out by their positions.
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

    def condition(self, stretch: Stretch, table: str) -> str:
        """SQL for the rows of a stretch that are in the table already; empty: none, or the very same load.

        The same load is left to the destination, which gives the answer of then.
        """
        id = stretch.load_id(table)
        if id in self._ids:
            return ""
        ranges = self._ranges.get(id[_QUEUE + 2 * _NUMBER :], [])
        return " OR ".join(
            f"({ROW} >= {first} AND {ROW} < {end})"
            for first, end in ranges
            if first < stretch.end and end > stretch.first
        )


def _digest(queue: str) -> str:
    return hashlib.sha256(queue.encode()).hexdigest()[:_QUEUE]


def _end(id: str) -> int:
    return int(id[_QUEUE : _QUEUE + _NUMBER], 16)


def _first(id: str) -> int:
    return int(id[_QUEUE + _NUMBER : _QUEUE + 2 * _NUMBER], 16)
