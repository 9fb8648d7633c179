"""Loads one range of positions into all its tables; rows that are refused become rejects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.crash_points import crash_point
from headwater.destinations.table import ROW
from headwater.errors import HeadwaterError, LoadRefused, LockTaken, TableBusy, TableRefused
from headwater.log.streams import Planned
from headwater.pipeline.load import Batch, BatchPart, Loader
from headwater.pipeline.load_report import Outcome
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.read_lines import LINE, REASON
from headwater.pipeline.steps.route import Router
from headwater.pipeline.stream.position_range import LoadedRanges, PositionRange
from headwater.printable import printable_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

MAX_PIECES = 256
"""Maximum loads of one search; pieces that are refused after that are rejected whole."""


@dataclass(frozen=True)
class _RangeOrigin:
    """A range as the origin of a load; errors are raised, so that its halves are loaded."""

    positions: PositionRange
    result: Outcome

    @property
    def name(self) -> str:
        return self.positions.name

    def load_id(self, table: str) -> str:
        return self.positions.load_id(table)

    def record(self, table: str, outcome: Outcome) -> None:
        self.result.add(outcome)

    def record_failure(self, table: str, error: Exception) -> None:
        raise error


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
            own = lines if is_whole else lines.where(f"{ROW} >= {piece.first} AND {ROW} < {piece.end}")
            known = [fields] if is_whole and fields is not None else []

            def attempt() -> None:
                try:
                    self._load_piece(table, piece, own, known)
                except (TableBusy, LockTaken) as error:
                    if may_postpone and is_whole:  # rows that are counted already must not come again
                        raise _TablePostponed(_reason(error)) from error
                    raise

            self.retry(attempt)

        search = BadRowSearch(
            load,
            is_cut=lambda piece: (table, piece.first, piece.end) in self.plan.split,
            save_cut=lambda piece: self._save_cut(table, piece),
        )
        for piece, error in search.run(self.positions):
            own = lines.where(f"{ROW} >= {piece.first} AND {ROW} < {piece.end} AND trim({LINE}) != ''")
            reason = _reason(error)
            count = self.loader.rejects.write(
                own.selectExpr("*", f"{literal(reason)} AS {REASON}"), self.positions.name
            )
            self.result.rejected += count
            logger.error(
                "%s, table %s: %d event(s) rejected: %s", piece.name, table, count, printable_line(reason)
            )

    def _save_cut(self, table: str, piece: PositionRange) -> None:
        self.plan.split.append((table, piece.first, piece.end))
        self.save_plan()
        crash_point("stream.after_split")

    def _load_piece(
        self, table: str, piece: PositionRange, lines: DataFrame, known: list[BatchFields]
    ) -> None:
        """Loads a piece; if it is refused, once more with the current structure of the table.

        `known` fields are used once: lookups add fields to them.
        """
        part = BatchPart(_RangeOrigin(piece, self.result), lines)
        try:
            self.loader.load(Batch(table, lines, {0: part}, known.pop() if known else None))
            return
        except Exception as error:
            if not is_about_rows(error):
                raise
            logger.warning(
                "%s, table %s: %s; its structure is read again.", piece.name, table, _reason(error)
            )
        self.loader.tables.forget(table)
        self.loader.load(Batch(table, lines, {0: part}))


def _reason(error: Exception) -> str:
    text = error.text if isinstance(error, HeadwaterError) else str(error)
    return text.strip().split("\n", 1)[0]


class BadRowSearch:
    """Loads a range, and the halves of each range that is refused, until the refused rows are alone.

    `save_cut` records a cut before a half is loaded, and `is_cut` reads it after a crash: a row that was
    loaded with one range is never loaded again with another (G5).
    """

    def __init__(
        self,
        load: Callable[[PositionRange], None],
        *,
        is_cut: Callable[[PositionRange], bool],
        save_cut: Callable[[PositionRange], None],
    ) -> None:
        self._load = load
        self._is_cut = is_cut
        self._save_cut = save_cut
        self._loads = 0

    def run(self, piece: PositionRange) -> list[tuple[PositionRange, Exception]]:
        """Loads the range and returns the parts that are refused, each with its error."""
        if not self._is_cut(piece):
            self._loads += 1
            try:
                self._load(piece)
            except Exception as error:
                if not is_about_rows(error):
                    raise
                is_last = isinstance(error, TableRefused) or self._loads >= MAX_PIECES
                if is_last or piece.end - piece.first == 1:
                    return [(piece, error)]
                self._save_cut(piece)
            else:
                return []
        return [refused for half in piece.halves() for refused in self.run(half)]


def is_about_rows(error: Exception) -> bool:
    """Whether a load failed because of its rows, so that other rows may succeed.

    Spark has classes for errors of expressions. All other errors, such as those of Python workers, disks and
    lost executors, concern Spark itself: the load must be repeated.
    """
    from pyspark import errors as spark

    about_expressions = (
        spark.AnalysisException,
        spark.ArithmeticException,
        spark.DateTimeException,
        spark.IllegalArgumentException,
        spark.NumberFormatException,
        spark.SparkRuntimeException,
    )
    return isinstance(error, (LoadRefused, TableRefused, *about_expressions))
