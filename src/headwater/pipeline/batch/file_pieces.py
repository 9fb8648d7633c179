"""Parts of a file that are loaded alone, while its refused lines are searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.destinations.table import ROW
from headwater.pipeline.batch.file_in_cycle import FileInCycle
from headwater.pipeline.find_bad_rows import BadRowSearch, PieceOrigin, load_piece, reject_piece, rows_of
from headwater.pipeline.load import Loader
from headwater.pipeline.load_report import Outcome
from headwater.pipeline.steps.read_lines import FILE
from headwater.system.crash_points import crash_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RowPiece:
    """Rows of a file. `spans` are the ranges of row numbers in use: each split of a file starts far above
    the one before it.
    """

    first: int
    end: int
    spans: tuple[tuple[int, int], ...] = field(compare=False)

    @classmethod
    def of(cls, spans: Sequence[tuple[int, int]]) -> RowPiece:
        """All rows of these spans, which are sorted, apart from each other and not empty."""
        return cls(spans[0][0], spans[-1][1], tuple(spans))

    def halves(self) -> tuple[RowPiece, RowPiece]:
        left: list[tuple[int, int]] = []
        right: list[tuple[int, int]] = []
        room = sum(end - first for first, end in self.spans) // 2
        for first, end in self.spans:
            middle = min(end, first + room)
            room -= middle - first
            if first < middle:
                left.append((first, middle))
            if middle < end:
                right.append((middle, end))
        return RowPiece.of(left), RowPiece.of(right)


def spans_of(lines: DataFrame) -> list[tuple[int, int]]:
    """The ranges of the row numbers of lines, one for each split."""
    from pyspark.sql import functions

    by_split = lines.groupBy(functions.expr(FILE)).agg(
        functions.min(ROW).alias("first"), functions.max(ROW).alias("last")
    )
    return sorted((row["first"], row["last"] + 1) for row in by_split.collect())


def load_by_pieces(loader: Loader, table: str, lines: DataFrame, file: FileInCycle) -> None:
    """Loads the lines of a file by halves until its refused lines are alone, and records the result.

    Each cut is saved in the file's status before a half is loaded: a later cycle cuts in the same places, and
    the ledger knows the pieces that are loaded (G5).
    """
    result, whole = Outcome(), RowPiece.of(spans_of(lines))

    def load(piece: RowPiece) -> None:
        if piece == whole:
            load_piece(loader, table, PieceOrigin(file.name, file.load_id(table), result), lines, None)
        else:
            id = file.load_id(table, f"{piece.first}-{piece.end}")
            load_piece(loader, table, PieceOrigin(file.name, id, result), rows_of(lines, piece), None)

    def save_cut(piece: RowPiece) -> None:
        file.save_cut(table, piece.first, piece.end)
        crash_point("pipeline.after_split")

    search = BadRowSearch(
        load, is_cut=lambda piece: file.is_cut(table, piece.first, piece.end), save_cut=save_cut
    )
    for piece, error in search.run(whole):
        result.rejected += reject_piece(loader, table, file.name, lines, piece, error)
    file.record(table, result)
