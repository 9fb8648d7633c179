"""Which rows of a load a destination will not take.

A database says that *some* row broke a rule, not which one. So parts of the load are tried, each in a
transaction that is rolled back, and those that fail are halved until the rows are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from headwater.destinations.base import RefusedRow
from headwater.errors import LoadRefused, TableRefused

__all__ = ["RowsRefused", "Selection", "fitting", "set_aside"]

_MOST_IN_COMPANY = 50


@contextmanager
def fitting(destination: str, table: str, hint: str = "") -> Iterator[None]:
    """A refusal in the block is one of the table, whose structure is being changed there, and of no row."""
    try:
        yield
    except LoadRefused as refusal:
        raise TableRefused(
            f"destination {destination}: the table {table!r} cannot be made to fit: {refusal.text}", hint=hint
        ) from refusal


class RowsRefused(LoadRefused):
    """Some row of what was tried broke a rule of the destination."""


class Selection(msgspec.Struct, frozen=True):
    """Part of a load: the rows from one to another, without some."""

    first: int | None = None
    last: int | None = None
    without: tuple[int, ...] = ()

    def condition(self, row: str) -> str:
        """The same as an SQL condition on the column `row`."""
        parts = [f"{row} >= {self.first}"] if self.first is not None else []
        if self.last is not None:
            parts.append(f"{row} <= {self.last}")
        if self.without:
            parts.append(f"{row} NOT IN ({', '.join(map(str, self.without))})")
        return " AND ".join(parts) or "TRUE"


def set_aside(
    ids: Sequence[int], fails: Callable[[Selection], str | None], most: int
) -> tuple[RefusedRow, ...]:
    """The rows without which the rest is taken; LoadRefused when they are more than `most`.

    `ids` are sorted; `fails` tries a part of the load, leaves nothing behind, and gives the reason or None.
    """
    refused: list[RefusedRow] = []
    pending = [(0, len(ids))]
    while pending:
        low, high = pending.pop()
        reason = fails(Selection(ids[low], ids[high - 1])) if low < high else None
        if reason is None:
            continue
        if high - low > 1:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
            continue
        refused.append(RefusedRow(ids[low], reason))
        if len(refused) > most:
            raise _too_many(len(refused), len(ids), reason)
    refused += _in_company(ids, fails, [row.row for row in refused])
    return tuple(refused)


def _in_company(
    ids: Sequence[int], fails: Callable[[Selection], str | None], without: list[int]
) -> list[RefusedRow]:
    """Rows that are refused only together with earlier ones, such as the second of a value that is unique."""
    refused: list[RefusedRow] = []
    good = 0
    while (reason := fails(Selection(without=tuple(without)))) is not None:
        if len(refused) >= _MOST_IN_COMPANY or good >= len(ids):
            raise _too_many(len(without), len(ids), reason)
        low, high = good, len(ids) - 1
        while low < high:
            middle = (low + high) // 2
            found = fails(Selection(last=ids[middle], without=tuple(without)))
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
        hint="Nothing was loaded. Mend the table's constraints or the mapping; then run again.",
    )
