"""Finds the rows that a destination or Spark refuses: a refused load is tried again in halves."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import LoadRefused, TableRefused
from headwater.pipeline.stream.position_range import PositionRange

MAX_PIECES = 256
"""Maximum loads of one search; pieces that are refused after that are rejected whole."""


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
