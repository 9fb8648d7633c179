"""Finds the rows of a load that a destination refuses.

A database reports that *some* row broke a rule, not which one. So parts of the load are tried, each in a
transaction that is rolled back, and the parts that fail are halved until the rows are found (G6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headwater.destinations.base import RefusedRow
from headwater.errors import LoadRefused

_MOST_CONFLICTS = 50


class RowsRefused(LoadRefused):
    """At least one row of a statement broke a rule of the destination."""


class RowSelection(msgspec.Struct, frozen=True):
    """Part of a load: the rows from `first` to `last`, without some."""

    first: int | None = None
    last: int | None = None
    without: tuple[int, ...] = ()

    def condition(self, row: str) -> str:
        """The SQL condition that selects the rows; `row` is SQL of the row number."""
        parts = [f"{row} >= {self.first}"] if self.first is not None else []
        if self.last is not None:
            parts.append(f"{row} <= {self.last}")
        if self.without:
            parts.append(f"{row} NOT IN ({', '.join(map(str, self.without))})")
        return " AND ".join(parts) or "TRUE"


def find_refused_rows(
    ids: Sequence[int], fails: Callable[[RowSelection], str | None], most: int
) -> tuple[RefusedRow, ...]:
    """The rows without which the destination takes the rest; LoadRefused if they are more than `most`.

    `ids` are sorted row numbers. `fails` tries a part of the load, undoes it, and returns the reason or None.
    """
    refused: list[RefusedRow] = []
    pending = [(0, len(ids))]
    while pending:
        low, high = pending.pop()
        reason = fails(RowSelection(ids[low], ids[high - 1])) if low < high else None
        if reason is None:
            continue
        if high - low > 1:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
            continue
        refused.append(RefusedRow(ids[low], reason))
        if len(refused) > most:
            raise _too_many(len(refused), len(ids), reason)
    refused += _find_conflicting_rows(ids, fails, [row.row for row in refused])
    return tuple(refused)


def _find_conflicting_rows(
    ids: Sequence[int], fails: Callable[[RowSelection], str | None], without: list[int]
) -> list[RefusedRow]:
    """Rows that violate a constraint only together with earlier rows: the second of a unique value."""
    refused: list[RefusedRow] = []
    good = 0
    while (reason := fails(RowSelection(without=tuple(without)))) is not None:
        if len(refused) >= _MOST_CONFLICTS or good >= len(ids):
            raise _too_many(len(without), len(ids), reason)
        low, high = good, len(ids) - 1
        while low < high:
            middle = (low + high) // 2
            found = fails(RowSelection(last=ids[middle], without=tuple(without)))
            if found is None:
                low = middle + 1
            else:
                high, reason = middle, found
        refused.append(RefusedRow(ids[low], reason))
        without.append(ids[low])
        good = low + 1
    return refused


def _too_many(refused: int, rows: int, reason: str) -> LoadRefused:
    return LoadRefused(
        f"{refused} or more of {rows} rows are refused; the last reason: {reason}",
        hint="Nothing was loaded. Change the table's constraints or the mapping; then run again.",
    )
