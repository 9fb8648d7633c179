"""The ledger: a table beside the users' tables that records which loads are stored.

The transaction that stores a load's rows also writes its entry: the entry exists if and only if the rows do
(G5). The entry also keeps the refused rows, so that a pipeline that died before it recorded them can do so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headwater.destinations.base import STREAM_ID_DIGITS, Loaded, RefusedRow, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.ledger_folding import Folded
from headwater.formats.json_decoder import json_decoder

LEDGER = "_headwater_loads"

_COLUMNS = {
    "load_id": Kind.STRING,
    "table_name": Kind.STRING,
    "row_count": Kind.INT64,
    "unmapped_count": Kind.INT64,
    "refused_count": Kind.INT64,
    "refused_rows": Kind.STRING,
}
_IDS = 500
"""The ids that one statement names."""
_REFUSED = json_decoder(tuple[RefusedRow, ...])


class Ledger:
    """Statements on the ledger of one destination, and what their results mean."""

    def __init__(
        self, relation: str, dialect: Dialect, *, read_from: str = "", condition: str = "TRUE"
    ) -> None:
        """`condition` selects the entries that count; `read_from` replaces the relation in queries."""
        self.relation, self._sql = relation, dialect
        self._source, self._condition = read_from or relation, condition

    def column_definitions(self, types: Mapping[Kind, str]) -> list[str]:
        """Names and types of the columns that every product has."""
        return [f"{self._sql.quoted(name)} {types[kind]}" for name, kind in _COLUMNS.items()]

    def _entry(self, table: str, loaded: Loaded, **further: str) -> tuple[str, str]:
        """Column names and SQL values of a load's entry; `further` columns have SQL values."""
        refused = msgspec.json.encode(loaded.refused).decode()
        numbers = map(str, (loaded.rows, loaded.unmapped, len(loaded.refused)))
        id, name, rows = map(self._sql.literal, (loaded.id, table, refused))
        values = [id, name, *numbers, rows, *further.values()]
        return self._sql.listed([*_COLUMNS, *further]), ", ".join(values)

    def insert(self, table: str, loaded: Loaded, **further: str) -> str:
        """Enters a load."""
        columns, values = self._entry(table, loaded, **further)
        return f"INSERT INTO {self.relation} ({columns}) VALUES ({values})"

    def merge(self, table: str, loaded: Loaded, attempt: str, now: str) -> str:
        """Enters a load with its attempt, unless it is entered: for products without unique constraints."""
        further = {"attempt": self._sql.literal(attempt), "loaded_at": now}
        columns, values = self._entry(table, loaded, **further)
        id = self._sql.literal(loaded.id)
        return (
            f"MERGE INTO {self.relation} AS target USING (SELECT {id} AS {self._id}) AS fresh "
            f"ON target.{self._id} = fresh.{self._id} "
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
        )

    def attempt_query(self, id: str) -> str:
        """Returns the attempt that entered a load."""
        attempt = self._sql.quoted("attempt")
        return f"SELECT {attempt} FROM {self.relation} WHERE {self._id} = {self._sql.literal(id)}"

    def entry_query(self, id: str, *further: str) -> str:
        """Returns a load's entry, whether it counts or not; `further` columns stand before it."""
        columns = self._sql.listed([*further, *_COLUMNS])
        return f"SELECT {columns} FROM {self._source} WHERE {self._id} = {self._sql.literal(id)}"

    def ids_query(self, ids: Sequence[str]) -> str:
        """Returns those of the load ids that are entered."""
        condition = f"{self._id} IN ({', '.join(map(self._sql.literal, ids))})" if ids else "FALSE"
        return f"SELECT {self._id} FROM {self._source} WHERE {condition} AND {self._condition}"

    def between_query(self, low: str, high: str, *further: str) -> str:
        """Returns the load ids from `low` up to and without `high`."""
        columns = self._sql.listed(["load_id", *further])
        low, high = self._sql.literal(low), self._sql.literal(high)
        return f"SELECT {columns} FROM {self._source} WHERE {self._id} >= {low} AND {self._id} < {high}"

    def old_stream_loads_query(self, before: str, limit: int) -> str:
        """Returns id, table and counts of loads of streams that were entered before a time."""
        columns = self._sql.listed([*_COLUMNS][:5])
        condition = (
            f"{self._condition} AND length({self._id}) = {STREAM_ID_DIGITS} "
            f"AND {self._sql.quoted('loaded_at')} < {before}"
        )
        return f"SELECT {columns} FROM {self._source} WHERE {condition} ORDER BY {self._id} LIMIT {limit}"

    def replace(self, folded: Folded, loaded_at: str, **further: str) -> list[str]:
        """Replaces entries by one, unless another process has done so."""
        id, table, *counts = folded.entry
        columns = self._sql.listed([*_COLUMNS, "loaded_at", *further])
        values = [
            *map(self._sql.literal, (id, table)),
            *map(str, counts),
            "'[]'",
            loaded_at,
            *further.values(),
        ]
        named = zip(values, columns.split(", "), strict=True)
        fresh = f"(SELECT {', '.join(f'{value} AS {name}' for value, name in named)}) AS fresh"
        found = f"SELECT 1 FROM {self.relation} WHERE {self._id} = {self._sql.literal(id)}"
        work = [f"INSERT INTO {self.relation} ({columns}) SELECT * FROM {fresh} WHERE NOT EXISTS ({found})"]
        for at in range(0, len(folded.replaced), _IDS):
            ids = ", ".join(map(self._sql.literal, folded.replaced[at : at + _IDS]))
            work.append(f"DELETE FROM {self.relation} WHERE {self._id} IN ({ids})")
        return work

    def totals_query(self) -> str:
        """Returns loads, rows, unmapped values and refused rows of each table."""
        table, *counts = (self._sql.quoted(name) for name in [*_COLUMNS][1:5])
        sums = ", ".join(f"sum({count})" for count in counts)
        source = f"{self._source} WHERE {self._condition}"
        return f"SELECT {table}, count(*), {sums} FROM {source} GROUP BY {table}"

    @staticmethod
    def loaded(row: Sequence[Any]) -> Loaded:
        """The answer to a load that is entered already, from a row of `entry_query`."""
        id, _, rows, unmapped, _, refused = row
        return Loaded(
            id=str(id),
            rows=int(rows),
            unmapped=int(unmapped),
            refused=_REFUSED.decode(str(refused)),
            already=True,
        )

    @staticmethod
    def totals(rows: Sequence[Sequence[Any]]) -> dict[str, Total]:
        """Totals by table, from the rows of `totals_query`."""
        found = {}
        for table, *numbers in rows:
            loads, count, unmapped, refused = map(int, numbers)
            found[str(table)] = Total(loads=loads, rows=count, unmapped=unmapped, refused=refused)
        return found

    @property
    def _id(self) -> str:
        return self._sql.quoted("load_id")
