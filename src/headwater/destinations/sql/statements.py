"""The statements that move rows from a staging relation into their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headwater.destinations.sql.dialect import Dialect

_RANK = "_headwater_rank"


class ColumnValue(NamedTuple):
    """How a staged value becomes a value of its column."""

    value: str
    """SQL of the value; NULL where it does not fit."""
    not_fitting: str = ""
    """SQL condition under which it does not fit; empty: it always fits."""
    original_json: str = ""
    """SQL of the staged value as JSON text; needed where it may not fit."""


class Rows(NamedTuple):
    """Staged rows as the target stores them."""

    source: str
    """The staging relation; its alias is `staged`."""
    row: str
    """SQL of the number that orders the rows."""
    values: dict[str, str]
    """SQL by column of the target."""
    condition: str
    """SQL condition that selects the rows."""
    key: tuple[str, ...] = ()

    def query(self, dialect: Dialect) -> str:
        """All columns, and the row number."""
        named = ", ".join(f"{value} AS {dialect.quoted(name)}" for name, value in self.values.items())
        return (
            f"SELECT {named}, {self.row} AS {dialect.row} FROM {self.source} AS staged WHERE {self.condition}"
        )


def count_not_fitting(source: str, condition: str, columns: Mapping[str, ColumnValue]) -> str:
    """Counts the values that do not fit, a number for each column."""
    counts = ", ".join(f"sum(CASE WHEN {each.not_fitting} THEN 1 ELSE 0 END)" for each in columns.values())
    return f"SELECT {counts} FROM {source} AS staged WHERE {condition}"


def unless_aside(column: ColumnValue, name: str, text: str, dialect: Dialect) -> ColumnValue:
    """The value of a time as its column stores it; one that does not fit may be aside already.

    The pipeline puts all digits of a time beside the microseconds that it stages: that entry stays alone.
    """
    is_aside = dialect.has_key(text, name) if text != "NULL" and column.not_fitting else ""
    if not is_aside:
        return column
    return column._replace(not_fitting=f"({column.not_fitting}) AND NOT coalesce({is_aside}, FALSE)")


def with_unmapped_sql(value: str, text: str, columns: Mapping[str, ColumnValue], dialect: Dialect) -> str:
    """SQL of a row's `_unmapped_data`: its staged fields, and the values that do not fit.

    `text` is the staged JSON object as text and `value` the same as the column stores it; both may be `NULL`.
    The object is joined as text: a product's own JSON functions would round numbers.
    """
    parts = " || ".join(
        f"CASE WHEN {each.not_fitting} THEN {dialect.literal(f',{_json_text(name)}:')} "
        f"|| {each.original_json} ELSE '' END"
        for name, each in columns.items()
    )
    any_not_fitting = " OR ".join(f"({each.not_fitting})" for each in columns.values())
    joined = f"'{{' || substr({parts}, 2) || '}}'"
    if text != "NULL":
        beside = f"substr({text}, 1, length({text}) - 1) || {parts} || '}}'"
        joined = f"CASE WHEN {text} IS NULL OR {text} = '{{}}' THEN {joined} ELSE {beside} END"
    return f"CASE WHEN {any_not_fitting} THEN {dialect.parse_json(joined)} ELSE {value} END"


def insert(target: str, rows: Rows, dialect: Dialect) -> str:
    """Appends the rows."""
    names = dialect.listed(rows.values)
    return f"INSERT INTO {target} ({names}) SELECT {names} FROM ({rows.query(dialect)}) AS base"


def key_present_sql(key: Sequence[str], dialect: Dialect, prefix: str = "") -> str:
    """The condition that a row has every column of the key."""
    return " AND ".join(f"{prefix}{dialect.quoted(name)} IS NOT NULL" for name in key)


def missing_key_query(rows: Rows, dialect: Dialect) -> str:
    """Returns a row if some row lacks a part of the key."""
    present = key_present_sql(rows.key, dialect)
    return f"SELECT 1 FROM ({rows.query(dialect)}) AS base WHERE NOT ({present}) LIMIT 1"


def insert_without_key(target: str, rows: Rows, dialect: Dialect) -> str:
    """Appends the rows that lack a part of the key: they replace no row."""
    return f"{insert(target, rows, dialect)} WHERE NOT ({key_present_sql(rows.key, dialect)})"


def repeated_key_query(rows: Rows, dialect: Dialect) -> str:
    """Returns a row if several rows have the same key."""
    key = dialect.listed(rows.key)
    return (
        f"SELECT {key} FROM ({rows.query(dialect)}) AS base WHERE {key_present_sql(rows.key, dialect)} "
        f"GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
    )


def latest_per_key(rows: Rows, dialect: Dialect, *, any_repeated: bool) -> str:
    """One row for each key: the last value of each column that is not NULL."""
    if not any_repeated:
        present = key_present_sql(rows.key, dialect)
        return f"SELECT {dialect.listed(rows.values)} FROM ({rows.query(dialect)}) AS base WHERE {present}"
    aggregates = {
        name: dialect.last_value(f"base.{dialect.quoted(name)}", f"base.{dialect.row}")
        for name in rows.values
        if name not in rows.key
    }
    if all(aggregates.values()):
        return _latest_by_aggregates(rows, aggregates, dialect)
    return _latest_by_windows(rows, dialect)


def _latest_by_aggregates(rows: Rows, aggregates: Mapping[str, str], dialect: Dialect) -> str:
    """Aggregates the rows of repeated keys only: the others need no memory."""
    key, present = dialect.listed(rows.key), key_present_sql(rows.key, dialect, "base.")
    same = " AND ".join(f"repeated.{dialect.quoted(name)} = base.{dialect.quoted(name)}" for name in rows.key)
    columns = ", ".join(
        f"{aggregates.get(name) or f'base.{dialect.quoted(name)}'} AS {dialect.quoted(name)}"
        for name in rows.values
    )
    return (
        f"WITH base AS ({rows.query(dialect)}), repeated AS (SELECT {key} FROM base "
        f"WHERE {key_present_sql(rows.key, dialect)} GROUP BY {key} HAVING count(*) > 1) "
        f"SELECT {dialect.listed(rows.values, 'base.')} FROM base LEFT JOIN repeated ON {same} "
        f"WHERE {present} AND repeated.{dialect.quoted(rows.key[0])} IS NULL UNION ALL "
        f"SELECT {columns} FROM base JOIN repeated ON {same} GROUP BY {dialect.listed(rows.key, 'base.')}"
    )


def _latest_by_windows(rows: Rows, dialect: Dialect) -> str:
    key = dialect.listed(rows.key)
    columns = [
        quoted
        if name in rows.key
        else f"first_value({quoted}) OVER (PARTITION BY {key} "
        f"ORDER BY CASE WHEN {quoted} IS NULL THEN 1 ELSE 0 END, {dialect.row} DESC "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS {quoted}"
        for name in rows.values
        for quoted in [dialect.quoted(name)]
    ]
    rank = dialect.quoted(_RANK)
    columns.append(f"row_number() OVER (PARTITION BY {key} ORDER BY {dialect.row} DESC) AS {rank}")
    return (
        f"SELECT {dialect.listed(rows.values)} FROM (SELECT {', '.join(columns)} "
        f"FROM ({rows.query(dialect)}) AS base WHERE {key_present_sql(rows.key, dialect)}) AS ranked "
        f"WHERE {rank} = 1"
    )


def insert_on_conflict(target: str, rows: Rows, fresh: str, dialect: Dialect) -> str:
    """Upserts the rows of the query `fresh` by INSERT … ON CONFLICT; NULL keeps the stored value."""
    names, key = dialect.listed(rows.values), dialect.listed(rows.key)
    changes = _changes(rows, "excluded", dialect)
    update = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
    return f"INSERT INTO {target} AS target ({names}) {fresh} ON CONFLICT ({key}) {update}"


def merge(target: str, rows: Rows, fresh: str, dialect: Dialect) -> str:
    """Upserts the rows of the query `fresh` by MERGE."""
    names = dialect.listed(rows.values)
    changes = _changes(rows, "fresh", dialect)
    matched = f"WHEN MATCHED THEN UPDATE SET {changes} " if changes else ""
    return (
        f"MERGE INTO {target} AS target USING ({fresh}) AS fresh ON {_same(rows.key, dialect)} {matched}"
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({dialect.listed(rows.values, 'fresh.')})"
    )


def update_and_insert(target: str, rows: Rows, fresh: str, dialect: Dialect) -> list[str]:
    """Upserts the rows of the table `fresh` by UPDATE and INSERT."""
    names, values = dialect.listed(rows.values), dialect.listed(rows.values, "fresh.")
    same, changes = _same(rows.key, dialect), _changes(rows, "fresh", dialect)
    update = [f"UPDATE {target} AS target SET {changes} FROM {fresh} AS fresh WHERE {same}"]
    return [
        *(update if changes else []),
        f"INSERT INTO {target} ({names}) SELECT {values} FROM {fresh} AS fresh "
        f"WHERE NOT EXISTS (SELECT 1 FROM {target} AS target WHERE {same})",
    ]


def _same(key: Sequence[str], dialect: Dialect) -> str:
    return " AND ".join(f"target.{dialect.quoted(name)} = fresh.{dialect.quoted(name)}" for name in key)


def _changes(rows: Rows, fresh: str, dialect: Dialect) -> str:
    """Assignments of an upsert; NULL stands for a field that the event does not have."""
    quoted = [dialect.quoted(name) for name in rows.values if name not in rows.key]
    return ", ".join(f"{name} = coalesce({fresh}.{name}, target.{name})" for name in quoted)


def _json_text(name: str) -> str:
    return msgspec.json.encode(name).decode()
