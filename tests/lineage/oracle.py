"""An oracle without expectations: change one input column, run the query again, see which outputs change.

Spark only analyzes; DuckDB runs, which takes a millisecond where Spark takes a second.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import duckdb

from tests.lineage.queries import TABLES

__all__ = ["Figures", "Influences", "Oracle"]

ROWS = 10
_TEXTS = ("x", "y", "z", "X")


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

    def __init__(self) -> None:
        self._database = duckdb.connect()
        self._database.execute("set threads = 1")
        self._changes: dict[tuple[str, str], list[str]] = {}
        rows = {name: self._rows(name) for name in TABLES}
        self._schema("base", rows)
        for table, columns in TABLES.items():
            for place, column in enumerate(columns):
                for way in range(3):
                    changed = dict(rows)
                    changed[table] = _changed(rows[table], place, way)
                    name = f"{table}_{column}_{way}"
                    self._schema(name, changed)
                    self._changes.setdefault((table, column), []).append(name)

    @staticmethod
    def _rows(table: str) -> list[list[Any]]:
        made = []
        for row in range(ROWS):
            values: list[Any] = []
            for place, kind in enumerate(TABLES[table].values()):
                mixed = (row * (3 + 2 * place) + place * 7 + len(table) + ord(table[0]) * row) % 11
                value: Any = mixed % 5 if kind == "int" else _TEXTS[mixed % 4]
                values.append(None if mixed == 10 else value)
            made.append(values)
        return made

    def _schema(self, name: str, rows: dict[str, list[list[Any]]]) -> None:
        self._database.execute(f"create schema {name}")
        for table, columns in TABLES.items():
            kinds = ", ".join(
                f"{column} {'varchar' if kind == 'string' else kind}" for column, kind in columns.items()
            )
            self._database.execute(f"create table {name}.{table} ({kinds})")
            marks = ", ".join("?" for _ in columns)
            self._database.executemany(f"insert into {name}.{table} values ({marks})", rows[table])

    def influences(self, query: str) -> Influences:
        """Which inputs were seen to change which outputs; raises duckdb.Error if the query does not run."""
        before = self._run("base", query)
        found: set[tuple[int, tuple[str, str]]] = set()
        for source, schemas in self._changes.items():
            for schema in schemas:
                after = self._run(schema, query)
                found |= {
                    (place, source)
                    for place, (one, other) in enumerate(zip(before, after, strict=True))
                    if one != other
                }
        return Influences(found, len(before))

    def _run(self, schema: str, query: str) -> list[Counter[Any]]:
        """The values of each column, in any order."""
        self._database.execute(f"set schema = '{schema}'")
        answer = self._database.execute(query)
        width = len(answer.description or ())
        rows = answer.fetchall()
        return [Counter(row[place] for row in rows) for place in range(width)]


def _changed(rows: list[list[Any]], place: int, way: int) -> list[list[Any]]:
    values = [row[place] for row in rows]
    if way == 0:  # the same values in other rows
        values = values[3:] + values[:3]
    elif way == 1:  # other values
        values = [_other(value) for value in values]
    else:  # one value alone
        values = [_other(value) if row == 4 else value for row, value in enumerate(values)]
    return [[*row[:place], value, *row[place + 1 :]] for row, value in zip(rows, values, strict=True)]


def _other(value: Any) -> Any:
    if isinstance(value, str):
        return _TEXTS[(_TEXTS.index(value) + 1) % len(_TEXTS)]
    return 3 if value is None else (value + 2) % 6
