"""A named reader's cursor: what it has finished, and what became of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from headwater.faults import crash_point
from headwater.log.index import BLOCK, CursorRow, Index

__all__ = ["Cursor", "Outcome"]

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
        self._has_rows = bool(self._blocks)  # the index has bitmaps of ours
        self._forgotten = False
        self.is_stored = True  # the file has all that memory has

    @property
    def position(self) -> int:
        return self.row.position

    def finish(self, outcomes: dict[Outcome, Iterable[int]]) -> dict[str, int]:
        """One transaction: these positions have these outcomes. Those finished before count once only.

        Survives kill -9; a power cut may take it back (G4). Returns how many were new, per outcome. Where
        the disk refuses, memory stays ahead of the file, and the next commit carries it all: the events are
        delivered, disk or no disk.
        """
        return self._finish(outcomes, durable=False)

    def drop(self, outcome: Outcome, positions: range) -> int:
        """Like `finish`, but on disk when it returns, and undone where the disk refuses: events are given
        up only once that is written down (G3)."""
        with self._index.lock:
            row, blocks = msgspec.structs.replace(self.row), dict(self._blocks)
            try:
                return self._finish({outcome: positions}, durable=True)[outcome]
            except BaseException:
                self.row, self._blocks = row, blocks
                raise

    def recount(self, delivered: int, rejected: int) -> None:
        """Move events between the two counts."""
        with self._index.lock:
            row = msgspec.structs.replace(self.row)
            self.row.delivered += delivered
            self.row.rejected += rejected
            try:
                self.store()
            except BaseException:
                self.row = row
                raise

    def store(self, *, whole: bool = False) -> None:
        """Put on disk what is in memory: what changed, or the `whole` of it into a new index."""
        with self._index.lock:
            if whole:
                self._dirty, self._has_rows = set(self._blocks), False
            self._finish({}, durable=True)

    def forget(self) -> None:
        with self._index.lock:
            self._index.forget(self.row.reader)
            self._forgotten = True  # a reader that is still at work must not bring it back

    def is_finished(self, position: int) -> bool:
        if position < self.row.position:
            return True
        bits = self._blocks.get(position // BLOCK)
        return bits is not None and bool(bits >> position % BLOCK & 1)

    @property
    def is_in_order(self) -> bool:
        """Nothing is finished above the position: the common case, and quick to read for."""
        return not self._blocks

    def _finish(self, outcomes: dict[Outcome, Iterable[int]], *, durable: bool) -> dict[str, int]:
        with self._index.lock:
            new: dict[str, int] = {}
            for outcome, positions in outcomes.items():
                new[outcome] = self._mark(positions)
                setattr(self.row, outcome, getattr(self.row, outcome) + new[outcome])
            self._advance()
            if self._forgotten:
                return new
            self.is_stored = False
            with self._index.transaction(durable=durable):
                if self._has_rows:
                    self._index.drop_blocks(self.row.reader, min(self._blocks, default=1 << 62))
                for block in self._dirty & self._blocks.keys():
                    self._index.put_block(self.row.reader, block, self._blocks[block])
                self._index.put(self.row)
                crash_point("cursor.before_commit")
            self._dirty.clear()
            self._has_rows = bool(self._blocks)
            self.is_stored = True
            crash_point("cursor.after_commit")
            return new

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
        for block in [block for block in self._blocks if block < current]:
            del self._blocks[block]
        if not self._blocks.get(current, 0) >> self.row.position % BLOCK:
            self._blocks.pop(current, None)
