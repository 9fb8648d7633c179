"""Loads one range of positions into all its tables; rows that are refused become rejects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import LockTaken, TableBusy
from headwater.log.streams import Planned
from headwater.pipeline.find_bad_rows import (
    BadRowSearch,
    PieceOrigin,
    first_reason,
    load_piece,
    reject_piece,
    rows_of,
)
from headwater.pipeline.load import Loader
from headwater.pipeline.load_report import Outcome
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.route import Router
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange
from headwater.system.crash_points import crash_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class _TablePostponed(Exception):
    """A table is locked, and the others of the range are loaded first."""


@dataclass
class RangeLoad:
    """One range. `save_plan` writes the cursor; `retry` repeats a load until the destination is reachable.

    The rows that a destination refuses are searched by halves. Each cut is saved in the plan before a half is
    loaded: after a crash the same pieces are loaded again (G5).
    """

    loader: Loader
    router: Router
    positions: PositionRange
    plan: Planned
    loaded: LoadedRanges
    save_plan: Callable[[], None]
    retry: Callable[[Callable[[], None]], None]
    result: Outcome = field(default_factory=Outcome)

    def run(self, lines: DataFrame) -> Outcome:
        """Routes the lines, loads all tables, and writes the rejects."""
        routed = self.router.route(lines)
        postponed = []
        for table in routed.tables:
            try:
                fields = routed.fields.get(table)
                self._load_table(table, routed.lines_for(table), fields, may_postpone=len(routed.tables) > 1)
            except _TablePostponed as error:
                logger.warning(
                    "%s, table %s: %s; the other tables come first.", self.positions.name, table, error
                )
                postponed.append(table)
        for table in postponed:
            self._load_table(table, routed.lines_for(table), None)
        if routed.rejected:
            self.loader.rejects.write(routed.rejects(), self.positions.name)
            self.result.rejected += routed.rejected
        self.result.skipped += routed.skipped
        return self.result

    def _load_table(
        self, table: str, lines: DataFrame, fields: BatchFields | None, *, may_postpone: bool = False
    ) -> None:
        if already_loaded := self.loaded.already_loaded_sql(self.positions, table):
            self.result.rows += lines.where(already_loaded).count()
            lines, fields, may_postpone = lines.where(f"NOT ({already_loaded})"), None, False

        def load(piece: PositionRange) -> None:
            is_whole = piece == self.positions
            own = lines if is_whole else rows_of(lines, piece)
            known = [fields] if is_whole and fields is not None else []

            def attempt() -> None:
                origin = PieceOrigin(piece.name, piece.load_id(table), self.result)
                try:
                    load_piece(self.loader, table, origin, own, known.pop() if known else None)
                except (TableBusy, LockTaken) as error:
                    if may_postpone and is_whole:  # rows that are counted already must not come again
                        raise _TablePostponed(first_reason(error)) from error
                    raise

            self.retry(attempt)

        search = BadRowSearch(
            load,
            is_cut=lambda piece: (table, piece.first, piece.end) in self.plan.split,
            save_cut=lambda piece: self._save_cut(table, piece),
        )
        for piece, error in search.run(self.positions):
            self.result.rejected += reject_piece(self.loader, table, piece.name, lines, piece, error)

    def _save_cut(self, table: str, piece: PositionRange) -> None:
        self.plan.split.append((table, piece.first, piece.end))
        self.save_plan()
        crash_point("stream.after_split")
