"""The search for refused rows, without a destination."""

from __future__ import annotations

import pytest

from headwater.errors import LoadRefused, TableRefused
from headwater.pipeline.stream import range_load
from headwater.pipeline.stream.position_range import PositionRange
from headwater.pipeline.stream.range_load import BadRowSearch, is_about_rows


class Destination:
    """Refuses pieces that contain one of these positions."""

    def __init__(self, *refused: int, error: Exception | None = None) -> None:
        self.refused = refused
        self.error = error or LoadRefused("refused")
        self.rows: list[int] = []
        self.cuts: list[PositionRange] = []

    def load(self, piece: PositionRange) -> None:
        if any(piece.first <= row < piece.end for row in self.refused):
            raise self.error
        self.rows.extend(range(piece.first, piece.end))

    def search(self, first: int, end: int) -> list[tuple[int, int]]:
        search = BadRowSearch(self.load, is_cut=self.cuts.__contains__, save_cut=self.cuts.append)
        found = search.run(PositionRange("q", "dwh", first, end))
        return [(piece.first, piece.end) for piece, _ in found]


def test_the_refused_rows_are_alone_when_some_of_many_are_refused() -> None:
    destination = Destination(3, 17, 18)
    assert destination.search(1, 33) == [(3, 4), (17, 18), (18, 19)]
    assert sorted(destination.rows) == [row for row in range(1, 33) if row not in (3, 17, 18)]


def test_pieces_stay_as_they_were_cut_when_the_search_is_repeated() -> None:
    destination = Destination(3)
    assert destination.search(1, 9) == [(3, 4)]
    cuts = list(destination.cuts)
    destination.refused, destination.rows = (), []
    assert destination.search(1, 9) == []
    assert destination.cuts == cuts
    assert sorted(destination.rows) == list(range(1, 9))


def test_nothing_is_cut_when_the_table_itself_is_refused() -> None:
    destination = Destination(3, error=TableRefused("a view"))
    assert destination.search(1, 9) == [(1, 9)]
    assert destination.cuts == []


def test_the_search_ends_when_it_needs_too_many_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_load, "MAX_PIECES", 4)
    destination = Destination(*range(1, 65))
    found = destination.search(1, 65)
    assert sum(end - first for first, end in found) == 64
    assert len(found) < 10


def test_the_error_is_raised_when_it_is_not_about_rows() -> None:
    destination = Destination(3, error=OSError("no space left on device"))
    with pytest.raises(OSError, match="no space"):
        destination.search(1, 9)
    assert destination.cuts == []


def test_errors_of_expressions_are_about_rows_when_spark_raises_them() -> None:
    from pyspark.errors import ArithmeticException, PythonException

    assert is_about_rows(ArithmeticException("[ARITHMETIC_OVERFLOW] long overflow"))
    assert not is_about_rows(PythonException("a worker could not write"))
