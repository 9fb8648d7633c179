"""How two rows with the same key become one, declared once for the tables and for batches in memory.

Each rule names some columns and keeps the smaller or the larger of two values; the values of several columns
are compared, and kept, together. Minimum and maximum do not depend on order or repetition, so neither does
the graph. A table's rules give the SQL upsert (`upsert`) and the merge in memory (`MergedRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=tuple[Hashable, ...])


class Rule(NamedTuple):
    """Columns whose values are kept together; `choose` returns which of two values stays."""

    columns: tuple[str, ...]
    choose: Callable[[Any, Any], Any]


def smallest(*columns: str) -> Rule:
    return Rule(columns, min)


def largest(*columns: str) -> Rule:
    return Rule(columns, max)


def earliest_known(column: str) -> Rule:
    """The smallest value that is not NULL."""
    return Rule((column,), _earliest_known)


def _earliest_known(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


class TableRules(NamedTuple):
    """The key of a table, and the rules of its other columns."""

    name: str
    key: tuple[str, ...]
    rules: tuple[Rule, ...]

    @property
    def upsert(self) -> str:
        """The statement that inserts a row, or merges it into the one that has its key."""
        columns = [*self.key, *chain.from_iterable(rule.columns for rule in self.rules)]
        insert = f"INSERT INTO {self.name}({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        return f"{insert} ON CONFLICT({', '.join(self.key)}) DO UPDATE SET {self._assignments()}"

    def _assignments(self) -> str:
        if len(self.rules) == 1:  # no write if the row would not change
            (rule,) = self.rules
            assigned = ", ".join(f"{column} = excluded.{column}" for column in rule.columns)
            return f"{assigned} WHERE {_is_better(rule)}"
        return ", ".join(assignment for rule in self.rules for assignment in _assignments(rule))


def _is_better(rule: Rule) -> str:
    old = ", ".join(rule.columns)
    new = ", ".join(f"excluded.{column}" for column in rule.columns)
    return f"({new}) {'<' if rule.choose is min else '>'} ({old})"


def _assignments(rule: Rule) -> Iterator[str]:
    first = rule.columns[0]
    if rule.choose is _earliest_known:
        yield f"{first} = min(ifnull({first}, excluded.{first}), ifnull(excluded.{first}, {first}))"
    elif len(rule.columns) == 1:
        yield f"{first} = {'min' if rule.choose is min else 'max'}({first}, excluded.{first})"
    else:
        for column in rule.columns:
            yield f"{column} = iif({_is_better(rule)}, excluded.{column}, {column})"


class MergedRows(Generic[K]):
    """Rows of one table, merged in memory."""

    def __init__(self, table: TableRules) -> None:
        self.upsert = table.upsert
        self._choices = [rule.choose for rule in table.rules]
        self._has_several_columns = [len(rule.columns) > 1 for rule in table.rules]
        self._rows: dict[K, tuple[Any, ...]] = {}

    def add(self, key: K, *values: Any) -> None:
        """Merge a row: one value for each rule, a tuple where the rule has several columns."""
        row = self._rows.setdefault(key, values)
        if row is values or row == values:
            return
        if len(values) == 1:  # half of the tables have one rule
            self._rows[key] = (self._choices[0](row[0], values[0]),)
        else:
            both = zip(self._choices, row, values, strict=True)
            self._rows[key] = tuple([choose(old, new) for choose, old, new in both])

    def get(self, key: K) -> tuple[Any, ...] | None:
        """The values of a row so far."""
        return self._rows.get(key)

    def added_keys(self) -> Iterator[K]:
        """The keys in the order of their first row."""
        return iter(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows as `TableRules.upsert` binds them."""
        if not any(self._has_several_columns):
            yield from (key + row for key, row in self._rows.items())
            return
        if len(self._choices) == 1:
            yield from (key + row[0] for key, row in self._rows.items())
            return
        for key, row in self._rows.items():
            bound = [*key]
            for value, is_tuple in zip(row, self._has_several_columns, strict=True):
                if is_tuple:
                    bound += value
                else:
                    bound.append(value)
            yield tuple(bound)


class MergedPeriods(MergedRows[K]):
    """Rows that have a period and nothing else, such as mentions: half of all rows, most without news."""

    def add(self, key: K, *values: Any) -> None:
        row = self._rows.setdefault(key, values)
        if row is not values and (values[0] < row[0] or values[1] > row[1]):
            self._rows[key] = (min(row[0], values[0]), max(row[1], values[1]))


_PERIOD = (smallest("first_at"), largest("last_at"))
_LATEST_FACET = (largest("at", "deleted", "value"),)

RUNS = TableRules(
    "runs",
    ("uuid",),
    (
        largest("job_at", "job"),
        largest("level", "state_at", "state"),
        *_PERIOD,
        earliest_known("started_at"),
        largest("parent_at", "parent", "parent_job", "root", "root_job"),
    ),
)
RUN_FACETS = TableRules("run_facets", ("run", "key"), _LATEST_FACET)
RUN_DATASETS = TableRules(
    "run_datasets",
    ("run", "direction", "name"),
    (largest("at"), largest("reported_at", "rows", "bytes", "files")),
)
FACETS = TableRules("facets", ("owner", "container", "key"), _LATEST_FACET)
LINK_STATEMENTS = TableRules("link_statements", ("owner", "producer"), (largest("at", "targets"),))
JOB_DATASETS = TableRules("job_datasets", ("job", "direction", "name"), _PERIOD)
SCHEMA_VERSIONS = TableRules("versions", ("name", "schema"), (*_PERIOD, largest("written_at")))
COLUMN_EDGES = TableRules(
    "edges",
    ("target", "source", "job", "type", "subtype", "masking"),
    (smallest("first_at"), largest("last_at", "description")),
)
LAST_STATEMENTS = TableRules("last_statements", ("name", "job", "kind"), (largest("at", "run"),))
# Names of datasets and jobs alike: when events mentioned them.
MENTIONS = TableRules("", ("id",), _PERIOD)
