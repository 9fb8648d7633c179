"""The ledger: a table beside the users' own that remembers which loads are in.

Its row is written by the transaction that writes the load's rows: it is there if and only if they are (G5).
It also keeps which rows were set aside: a pipeline that died before it could note them is told again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.destinations.base import Loaded, RefusedRow, Total
from headwater.destinations.sql.dialect import listed, literal

__all__ = ["COLUMNS", "LEDGER", "entry_values", "from_row", "ids_condition", "to_totals"]

LEDGER = "_headwater_loads"
COLUMNS = ("load_id", "table_name", "row_count", "unmapped_count", "refused_count", "refused_rows")
SELECTED = listed(COLUMNS)
# Made once: two threads that have msgspec prepare the same type at the same time crash the process.
_REFUSED = msgspec.json.Decoder(tuple[RefusedRow, ...])


def entry_values(table: str, loaded: Loaded) -> str:
    """A row of the ledger, in the order of COLUMNS, as SQL literals."""
    refused = msgspec.json.encode(loaded.refused).decode()
    numbers = (loaded.rows, loaded.unmapped, len(loaded.refused))
    return ", ".join([literal(loaded.id), literal(table), *map(str, numbers), literal(refused)])


def from_row(row: Sequence[object]) -> Loaded:
    """What the ledger says about a load; `row` is in the order of COLUMNS."""
    id, _, rows, unmapped, _, refused = row
    return Loaded(
        id=str(id),
        rows=int(str(rows)),
        unmapped=int(str(unmapped)),
        refused=_REFUSED.decode(str(refused)),
        already=True,
    )


def ids_condition(ids: Sequence[str]) -> str:
    """A condition that selects these loads."""
    return f"load_id IN ({', '.join(map(literal, ids))})" if ids else "FALSE"


def to_totals(rows: Sequence[Sequence[object]]) -> dict[str, Total]:
    """Totals by table, of rows (table, loads, rows, unmapped, refused)."""
    return {
        str(table): Total(
            loads=int(str(loads)),
            rows=int(str(count)),
            unmapped=int(str(unmapped)),
            refused=int(str(refused)),
        )
        for table, loads, count, unmapped, refused in rows
    }
