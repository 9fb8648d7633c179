"""Refused rows are found with few trials."""

from __future__ import annotations

import pytest

from headwater.destinations.refused_rows import RowSelection, find_refused_rows
from headwater.errors import LoadRefused

IDS = [10 * i for i in range(1_000)]


class Table:
    """Refuses some rows always, and each of some pairs only beside the other."""

    def __init__(self, bad: set[int], pairs: list[set[int]] | None = None) -> None:
        self.bad, self.pairs, self.trials = bad, pairs or [], 0

    def fails(self, selection: RowSelection) -> str | None:
        self.trials += 1
        first = selection.first if selection.first is not None else min(IDS)
        last = selection.last if selection.last is not None else max(IDS)
        rows = {row for row in IDS if first <= row <= last} - set(selection.without)
        if self.bad & rows:
            return "bad"
        return "pair" if any(pair <= rows for pair in self.pairs) else None


def test_exactly_the_bad_rows_are_found_when_there_are_some() -> None:
    table = Table({0, 500, 510, 9_990})
    assert [(row.row, row.reason) for row in find_refused_rows(IDS, table.fails, 10)] == [
        (0, "bad"),
        (500, "bad"),
        (510, "bad"),
        (9_990, "bad"),
    ]
    assert table.trials < 100


def test_the_later_row_is_set_aside_when_two_do_not_go_together() -> None:
    table = Table({70}, [{100, 5_000}, {9_980, 9_990}])
    assert {row.row for row in find_refused_rows(IDS, table.fails, 10)} == {70, 5_000, 9_990}


def test_none_is_set_aside_when_all_are_good() -> None:
    table = Table(set())
    assert find_refused_rows(IDS, table.fails, 10) == ()


def test_the_load_is_refused_when_too_many_rows_are() -> None:
    with pytest.raises(LoadRefused, match="bad"):
        find_refused_rows(IDS, Table(set(IDS[:20])).fails, 10)


def test_the_load_is_refused_when_it_fails_without_any_row() -> None:
    with pytest.raises(LoadRefused, match="always"):
        find_refused_rows([1], lambda selection: None if selection.first else "always", 10)
