"""The statements that fill a table beside the target with a load's rows, merged with stored rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from headwater.destinations.clickhouse.types import DIALECT
from headwater.destinations.sql import statements
from headwater.destinations.sql.statements import Rows
from headwater.destinations.table import Table

ROW_WITHOUT_KEY = "_headwater_keyless"
"""Hidden last column of the sorting keys that Headwater creates: it differs in rows that lack their key, so
that they replace no row."""


class LoadTables(NamedTuple):
    """The tables beside a load's target."""

    raw: str
    ready: str


def load_tables(load_id: str) -> LoadTables:
    """The names of a load's tables; a retry computes the same names."""
    digest = blake2b(load_id.encode(), digest_size=12).hexdigest()
    return LoadTables(f"_headwater_raw_{digest}", f"_headwater_ready_{digest}")


def append(ready: str, rows: Rows, load_id: str, *, has_row_without_key: bool) -> str:
    """Inserts the rows that lack a part of the key, or all rows if there is no key."""
    names = DIALECT.listed(rows.values)
    hidden, unlike = "", ""
    if has_row_without_key:
        hidden = f", {DIALECT.quoted(ROW_WITHOUT_KEY)}"
        unlike = f", concat({DIALECT.literal(load_id + ':')}, toString({DIALECT.row}))"
    rest = f" WHERE NOT ({statements.key_present_sql(rows.key, DIALECT)})" if rows.key else ""
    return (
        f"INSERT INTO {ready} ({names}{hidden}) "
        f"SELECT {names}{unlike} FROM ({rows.query(DIALECT)}) AS base{rest}"
    )


def merge_with_stored(ready: str, stored: str, table: Table, rows: Rows, *, any_repeated: bool) -> str:
    """Inserts one row for each key: the last value of each column, or else that of the table `stored`."""
    fresh = statements.latest_per_key(rows, DIALECT, any_repeated=any_repeated)
    key, columns = DIALECT.listed(rows.key), DIALECT.listed(table.columns)
    present = statements.key_present_sql(rows.key, DIALECT)
    values = ", ".join(_merged_value(name, rows) for name in table.columns)
    same = " AND ".join(f"fresh.{each} = stored.{each}" for each in map(DIALECT.quoted, rows.key))
    return (
        f"INSERT INTO {ready} ({columns}) SELECT {values} FROM ({fresh}) AS fresh LEFT JOIN ("
        f"SELECT {columns} FROM {stored} "
        f"WHERE ({key}) IN (SELECT {key} FROM ({rows.query(DIALECT)}) AS base WHERE {present})"
        f") AS stored ON {same}"
    )


def _merged_value(name: str, rows: Rows) -> str:
    quoted = DIALECT.quoted(name)
    if name in rows.key:
        return f"fresh.{quoted}"
    return f"coalesce(fresh.{quoted}, stored.{quoted})" if name in rows.values else f"stored.{quoted}"
