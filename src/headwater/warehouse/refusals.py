"""Which rows of a load a destination will not take.

A database says that *some* row broke a constraint, not which one. So beginnings of the load are tried, in
transactions that are rolled back: the row that ends the shortest failing one is set aside, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headwater.errors import LoadRefused
from headwater.warehouse.base import RefusedRow

__all__ = ["MOST", "RowsRefused", "Selection", "set_aside"]

MOST = 50
"""More refused rows than this are no accident: the load is refused as a whole."""


class RowsRefused(LoadRefused):
    """Some row of what was tried broke a rule of the destination."""


class Selection(msgspec.Struct, frozen=True):
    """Part of a load: the rows up to one, without some."""

    upto: int | None = None
    without: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.upto is not None or bool(self.without)

    def condition(self, row: str) -> str:
        """The same as an SQL condition on the column `row`."""
        parts = [f"{row} <= {self.upto}"] if self.upto is not None else []
        if self.without:
            parts.append(f"{row} NOT IN ({', '.join(map(str, self.without))})")
        return " AND ".join(parts) or "TRUE"


def set_aside(ids: Sequence[int], fails: Callable[[Selection], str | None]) -> tuple[RefusedRow, ...]:
    """The rows without which the rest is taken; LoadRefused when they are too many.

    `ids` are sorted; `fails` tries a part of the load, leaves nothing behind, and gives the reason or None.
    """
    refused: list[RefusedRow] = []
    good = 0
    while True:
        without = tuple(row.row for row in refused)
        reason = fails(Selection(without=without))
        if reason is None:
            return tuple(refused)
        if len(refused) >= MOST or good >= len(ids):
            raise LoadRefused(
                f"more than {len(refused)} of {len(ids)} rows are refused; the last reason: {reason}",
                hint="Nothing was loaded. Mend the table's constraints or the mapping; then run again.",
            )
        low, high = good, len(ids) - 1  # the culprit is one of ids[low] … ids[high]
        while low < high:
            middle = (low + high) // 2
            found = fails(Selection(ids[middle], without))
            if found is None:
                low = middle + 1
            else:
                high, reason = middle, found
        refused.append(RefusedRow(ids[low], reason))
        good = low + 1
