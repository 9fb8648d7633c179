"""Loads the lines of one table, and finds the lines that Spark or the destination refuses, in both modes.

If a load fails because of its rows, its halves are loaded, and so on until the refused rows are alone; they
become rejects, and all others are stored (G6). The class of the error decides: an error that is not known to
concern rows is raised, and the load is repeated later. A dead executor or a full disk rejects no event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from headwater.destinations.table import ROW
from headwater.errors import HeadwaterError, LoadRefused, TableRefused
from headwater.formats.printable import printable_line
from headwater.pipeline.load import Batch, BatchPart, Loader, LoadOrigin
from headwater.pipeline.load_report import Outcome, reason_of
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.read_lines import LINE, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

MAX_PIECES = 256
"""Maximum loads of one search; pieces that are refused after that are rejected whole."""

_CLASSES_ABOUT_ROWS = ("21", "22", "23", "42", "54", "P0")
_NOT_ABOUT_ROWS = ("42501", "42K03", "42P01")
"""SQLSTATEs of files and tables that are missing or must not be read: those of staging, never of an event."""


def is_about_rows(error: Exception) -> bool:
    """Whether a load failed because of its rows, so that other rows may succeed.

    The class of an error of Spark is that of its SQLSTATE: values that do not convert, plans that the names
    or the number of fields make invalid. Errors without a known class concern Spark itself or its machines.
    """
    from pyspark import errors as spark

    if isinstance(error, (LoadRefused, TableRefused)):
        return True
    if not isinstance(error, spark.PySparkException):
        return False
    if state := error.getSqlState():
        return state[:2] in _CLASSES_ABOUT_ROWS and state not in _NOT_ABOUT_ROWS
    return isinstance(
        error, (spark.ArithmeticException, spark.DateTimeException, spark.NumberFormatException)
    )


class Piece(Protocol):
    """Rows by their numbers, from `first` up to and without `end`."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    def halves(self) -> tuple[Self, Self]:
        """The same two pieces whenever it is called."""


P = TypeVar("P", bound=Piece)


class BadRowSearch(Generic[P]):
    """Loads a piece, and the halves of each piece that is refused, until the refused rows are alone.

    `save_cut` records a cut before a half is loaded, and `is_cut` reads it after a crash: a row that was
    loaded with one piece is never loaded again with another (G5).
    """

    def __init__(
        self,
        load: Callable[[P], None],
        *,
        is_cut: Callable[[P], bool],
        save_cut: Callable[[P], None],
    ) -> None:
        self._load = load
        self._is_cut = is_cut
        self._save_cut = save_cut
        self._loads = 0

    def run(self, piece: P) -> list[tuple[P, Exception]]:
        """Loads the piece and returns the parts of it that are refused, each with its error."""
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


@dataclass(frozen=True)
class PieceOrigin:
    """A piece as the origin of a load; errors are raised, so that its halves are loaded."""

    name: str
    id: str
    result: Outcome

    def load_id(self, table: str) -> str:
        return self.id

    def record(self, table: str, outcome: Outcome) -> None:
        self.result.add(outcome)

    def record_failure(self, table: str, error: Exception) -> None:
        raise error


def load_piece(
    loader: Loader, table: str, origin: LoadOrigin, lines: DataFrame, fields: BatchFields | None
) -> None:
    """Loads a piece; if it is refused, once more with the current structure of the table.

    `fields` serve the first attempt only: lookups add fields to them.
    """
    part = BatchPart(origin, lines)
    try:
        loader.load(Batch(table, lines, {0: part}, fields))
        return
    except Exception as error:
        if not is_about_rows(error):
            raise
        logger.warning(
            "%s, table %s: %s; its structure is read again.", origin.name, table, first_reason(error)
        )
    loader.tables.forget(table)
    loader.load(Batch(table, lines, {0: part}))


def rows_of(lines: DataFrame, piece: Piece) -> DataFrame:
    """The lines of a piece."""
    return lines.where(f"{ROW} >= {piece.first} AND {ROW} < {piece.end}")


def reject_piece(
    loader: Loader, table: str, name: str, lines: DataFrame, piece: Piece, error: Exception
) -> int:
    """Writes the lines of a refused piece to the rejects; returns their number."""
    own = rows_of(lines, piece).where(f"trim({LINE}) != ''")
    reason = first_reason(error)
    count = loader.rejects.write(own.selectExpr("*", f"{literal(reason)} AS {REASON}"), name)
    logger.error("%s, table %s: %d event(s) rejected: %s", name, table, count, printable_line(reason))
    return count


def first_reason(error: Exception) -> str:
    """The first line of an error, without its hint."""
    return error.text.strip().split("\n", 1)[0] if isinstance(error, HeadwaterError) else reason_of(error)
