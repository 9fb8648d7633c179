"""An oracle without expectations: change one input column, run the query again, see which outputs change.

Spark only analyzes; DuckDB runs, which takes a millisecond where Spark takes a second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import duckdb

from tests.lineage.queries import TABLES

__all__ = ["Figures", "Influences", "Oracle"]

ROWS = 10
_TEXTS = ("x", "y", "z", "X")
_KINDS = {"string": "varchar"}


class Influences(NamedTuple):
    """Pairs of output (by position) and input (table, column) that were seen to be tied."""

    pairs: set[tuple[int, tuple[str, str]]]
    outputs: int


class Figures:
    """The number of edges, and of those that were seen to have an effect."""

    def __init__(self) -> None:
        self.queries = 0
        self.influences = 0
        self.edges: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    def __str__(self) -> str:
        shares = ", ".join(
            f"{kind}: {count} edges, {100 * (count - self.seen[kind]) / count:.0f} % never had an effect"
            for kind, count in sorted(self.edges.items())
        )
        return f"{self.queries} queries, {self.influences} influences seen; {shares}"


class Oracle:
    """The tables as they are, and with each column changed in several ways, as schemas of one database."""

    def __init__(self, tables: Mapping[str, Mapping[str, str]] = TABLES) -> None:
        self._tables = tables
        self._database = duckdb.connect()
        self._database.execute("set threads = 1")
        self._changes: dict[tuple[str, str], list[str]] = {}
        rows = {name: self._rows(name) for name in tables}
        self._schema("base", rows)
        for table, columns in tables.items():
            for place, column in enumerate(columns):
                for way in range(3):
                    changed = dict(rows)
                    changed[table] = _changed(rows[table], place, way)
                    name = f"{table}_{column}_{way}"
                    self._schema(name, changed)
                    self._changes.setdefault((table, column), []).append(name)

    def _rows(self, table: str) -> list[list[Any]]:
        made = []
        for row in range(ROWS):
            values: list[Any] = []
            for place, kind in enumerate(self._tables[table].values()):
                mixed = (row * (3 + 2 * place) + place * 7 + len(table) + ord(table[0]) * row) % 11
                values.append(None if mixed == 10 else _value(kind, mixed))
            made.append(values)
        return made

    def _schema(self, name: str, rows: dict[str, list[list[Any]]]) -> None:
        self._database.execute(f"create schema {name}")
        for table, columns in self._tables.items():
            kinds = ", ".join(f"{column} {_KINDS.get(kind, kind)}" for column, kind in columns.items())
            self._database.execute(f"create table {name}.{table} ({kinds})")
            marks = ", ".join("?" for _ in columns)
            every = ", ".join(f"({marks})" for _ in rows[table])
            values = [value for row in rows[table] for value in row]
            self._database.execute(f"insert into {name}.{table} values {every}", values)

    def influences(self, query: str) -> Influences:
        """Which inputs were seen to change which outputs; raises duckdb.Error if the query does not run."""
        before = self._run("base", query)
        found: set[tuple[int, tuple[str, str]]] = set()
        for source, schemas in self._changes.items():
            if not re.search(rf"\b{source[0]}\b", query):
                continue
            for schema in schemas:
                after = self._run(schema, query)
                found |= {
                    (place, source)
                    for place, (one, other) in enumerate(zip(before, after, strict=True))
                    if one != other
                }
        return Influences(found, len(before))

    def is_random(self, query: str) -> bool:
        """Whether two runs of the query differ."""
        return self._run("base", query) != self._run("base", query)

    def _run(self, schema: str, query: str) -> list[Counter[Any]]:
        """The values of each column, in any order."""
        self._database.execute(f"set schema = '{schema}'")
        answer = self._database.execute(query)
        width = len(answer.description or ())
        rows = answer.fetchall()
        return [Counter(_hashable(row[place]) for row in rows) for place in range(width)]


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value


def _value(kind: str, mixed: int) -> Any:
    if kind == "string":
        return _TEXTS[mixed % 4]
    if kind == "date":
        return date(2026, 1 + mixed % 5, 1)
    if kind == "timestamp":
        return datetime.fromisoformat(f"2026-01-01T0{mixed % 5}:00:00")
    if kind == "int[]":
        return [mixed % 5, mixed % 3]
    return mixed % 5


def _changed(rows: list[list[Any]], place: int, way: int) -> list[list[Any]]:
    values = [row[place] for row in rows]
    filler = next((value for value in values if isinstance(value, date | list)), 3)  # for an empty one
    if way == 0:  # the same values in other rows
        values = values[3:] + values[:3]
    elif way == 1:  # other values
        values = [filler if value is None else _other(value) for value in values]
    else:  # one value alone
        changed = filler if values[4] is None else _other(values[4])
        values = [*values[:4], changed, *values[5:]]
    return [[*row[:place], value, *row[place + 1 :]] for row, value in zip(rows, values, strict=True)]


def _other(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value + timedelta(days=40)
    if isinstance(value, list):
        return [*map(_other, value), 1]
    if isinstance(value, str):
        return _TEXTS[(_TEXTS.index(value) + 1) % len(_TEXTS)]
    return (value + 2) % 6
