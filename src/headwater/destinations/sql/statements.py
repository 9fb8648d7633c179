"""The statements that bring rows from a staging table into their own: pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.transfer_columns import ROW_SLOT

__all__ = [
    "Rows",
    "gathered",
    "insert",
    "keyless",
    "lacking",
    "latest",
    "merge",
    "repeated",
    "update_and_insert",
    "whole",
]

_PLACE = "headwater_place"


class Rows(NamedTuple):
    """Rows of a staging table as their target takes them."""

    source: str
    """What stands behind FROM; its alias is `staged`."""
    values: dict[str, str]
    """SQL by column of the target."""
    condition: str
    key: tuple[str, ...]

    def query(self, dialect: Dialect) -> str:
        """All of them, with their number."""
        named = ", ".join(f"{value} AS {dialect.quoted(name)}" for name, value in self.values.items())
        return (
            f"SELECT {named}, staged.{dialect.quoted(ROW_SLOT)} AS {dialect.quoted(ROW_SLOT)} "
            f"FROM {self.source} AS staged WHERE {self.condition}"
        )


def gathered(unmapped: str, misfits: Mapping[str, tuple[str, str]], dialect: Dialect) -> str:
    """SQL of a row's `_unmapped_data` as JSON text: what it has, and what does not fit.

    `misfits` has the condition and the JSON's SQL by column.
    """
    parts = " || ".join(
        f"CASE WHEN {condition} THEN {dialect.literal(f',{_encoded(name)}:')} || {json} ELSE '' END"
        for name, (condition, json) in misfits.items()
    )
    either = " OR ".join(f"({condition})" for condition, _ in misfits.values())
    alone = f"'{{' || substr({parts}, 2) || '}}'"
    if unmapped == "NULL":
        return f"CASE WHEN {either} THEN {alone} END"
    beside = f"substr({unmapped}, 1, length({unmapped}) - 1) || {parts} || '}}'"
    return (
        f"CASE WHEN NOT ({either}) THEN {unmapped} "
        f"WHEN {unmapped} IS NULL OR {unmapped} = '{{}}' THEN {alone} ELSE {beside} END"
    )


def insert(target: str, rows: Rows, dialect: Dialect) -> str:
    """Append them."""
    names = dialect.listed(rows.values)
    return f"INSERT INTO {target} ({names}) SELECT {names} FROM ({rows.query(dialect)}) AS base"


def lacking(rows: Rows, dialect: Dialect) -> str:
    """Asks for a row without a whole key."""
    return f"SELECT 1 FROM ({rows.query(dialect)}) AS base WHERE NOT ({whole(rows.key, dialect)}) LIMIT 1"


def keyless(target: str, rows: Rows, dialect: Dialect) -> str:
    """Append those without a whole key: they are nobody's successors."""
    return f"{insert(target, rows, dialect)} WHERE NOT ({whole(rows.key, dialect)})"


def whole(key: Sequence[str], dialect: Dialect) -> str:
    """The condition that a row has all of its key."""
    return " AND ".join(f"{dialect.quoted(name)} IS NOT NULL" for name in key)


def repeated(rows: Rows, dialect: Dialect) -> str:
    """Asks for a key that comes more than once."""
    key = dialect.listed(rows.key)
    return (
        f"SELECT {key} FROM ({rows.query(dialect)}) AS base WHERE {whole(rows.key, dialect)} "
        f"GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
    )


def latest(rows: Rows, dialect: Dialect, *, any_repeated: bool) -> str:
    """One row per key: of each column the last value that there is."""
    names, key = dialect.listed(rows.values), dialect.listed(rows.key)
    base = f"SELECT {{}} FROM ({rows.query(dialect)}) AS base WHERE {whole(rows.key, dialect)}"
    if not any_repeated:
        return base.format(names)
    row = dialect.quoted(ROW_SLOT)
    columns = [
        quoted
        if name in rows.key
        else f"first_value({quoted}) OVER (PARTITION BY {key} "
        f"ORDER BY CASE WHEN {quoted} IS NULL THEN 1 ELSE 0 END, {row} DESC "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS {quoted}"
        for name in rows.values
        for quoted in [dialect.quoted(name)]
    ]
    place = dialect.quoted(_PLACE)
    columns.append(f"row_number() OVER (PARTITION BY {key} ORDER BY {row} DESC) AS {place}")
    return f"SELECT {names} FROM ({base.format(', '.join(columns))}) AS ranked WHERE {place} = 1"


def merge(target: str, rows: Rows, fresh: str, dialect: Dialect) -> str:
    """MERGE; NULL is a field that the event did not have."""
    names = dialect.listed(rows.values)
    changes = _changes(rows, dialect)
    matched = f"WHEN MATCHED THEN UPDATE SET {changes} " if changes else ""
    return (
        f"MERGE INTO {target} AS target USING ({fresh}) AS fresh ON {_same(rows.key, dialect)} {matched}"
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({dialect.listed(rows.values, 'fresh.')})"
    )


def update_and_insert(target: str, rows: Rows, fresh: str, dialect: Dialect) -> list[str]:
    """The same in two statements; `fresh` is a table."""
    names, values = dialect.listed(rows.values), dialect.listed(rows.values, "fresh.")
    same, changes = _same(rows.key, dialect), _changes(rows, dialect)
    update = [f"UPDATE {target} AS target SET {changes} FROM {fresh} AS fresh WHERE {same}"]
    return [
        *(update if changes else []),
        f"INSERT INTO {target} ({names}) SELECT {values} FROM {fresh} AS fresh "
        f"WHERE NOT EXISTS (SELECT 1 FROM {target} AS target WHERE {same})",
    ]


def _same(key: Sequence[str], dialect: Dialect) -> str:
    return " AND ".join(f"target.{dialect.quoted(name)} = fresh.{dialect.quoted(name)}" for name in key)


def _changes(rows: Rows, dialect: Dialect) -> str:
    quoted = [dialect.quoted(name) for name in rows.values if name not in rows.key]
    return ", ".join(f"{name} = coalesce(fresh.{name}, target.{name})" for name in quoted)


def _encoded(name: str) -> str:
    return msgspec.json.encode(name).decode()
