"""Finds the rows that a destination or Spark refuses: a refused load is tried again in halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from headwater.errors import LoadRefused, TableRefused

MAX_PIECES = 256
"""Maximum loads of one search; pieces that are refused after that are rejected whole."""


class Piece(Protocol):
    """Rows that are loaded together."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    def halves(self) -> tuple[Self, Self]: ...


P = TypeVar("P", bound=Piece)


@dataclass(frozen=True)
class RefusedPiece(Generic[P]):
    """Rows that were refused, and the error."""

    piece: P
    error: Exception


class BadRowSearch(Generic[P]):
    """Loads a piece, and the halves of each piece that is refused, until the refused rows are alone.

    `save_cut` records a cut before a half is loaded, and `is_cut` reads it after a crash: a row that was
    loaded with one piece is never loaded again with another (G5).
    """

    def __init__(
        self, load: Callable[[P], None], *, is_cut: Callable[[P], bool], save_cut: Callable[[P], None]
    ) -> None:
        self._load = load
        self._is_cut = is_cut
        self._save_cut = save_cut
        self._loads = 0

    def run(self, piece: P) -> list[RefusedPiece[P]]:
        """Loads the piece and returns the parts that are refused."""
        if not self._is_cut(piece):
            self._loads += 1
            try:
                self._load(piece)
            except Exception as error:
                if not is_about_rows(error):
                    raise
                is_last = isinstance(error, TableRefused) or self._loads >= MAX_PIECES
                if is_last or piece.end - piece.first == 1:
                    return [RefusedPiece(piece, error)]
                self._save_cut(piece)
            else:
                return []
        return [refused for half in piece.halves() for refused in self.run(half)]


def is_about_rows(error: Exception) -> bool:
    """Whether a load failed because of its rows, so that other rows may succeed.

    Spark has classes for errors of expressions. All other errors, such as those of Python workers, disks and
    lost executors, concern Spark itself: the load must be repeated.
    """
    if isinstance(error, LoadRefused | TableRefused):
        return True
    from pyspark.errors import (
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
        SparkRuntimeException,
    )

    about_expressions = (
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
        SparkRuntimeException,
    )
    return isinstance(error, about_expressions)
