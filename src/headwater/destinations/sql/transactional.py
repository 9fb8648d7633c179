"""Loading into products that have transactions and speak the usual SQL: what DuckDB and Postgres share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from headwater.crash_points import crash_point
from headwater.destinations import ledger
from headwater.destinations.base import Destination, Load, Loaded, RefusedRow, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused, Selection, fitting, set_aside
from headwater.destinations.sql.dialect import listed, literal, quoted
from headwater.destinations.sql.merging import transaction
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import (
    ROW,
    UNMAPPED,
    Column,
    Patch,
    Table,
    check_names,
    check_sql_type,
    diff,
)
from headwater.errors import LoadRefused

__all__ = ["Fit", "Plan", "TransactionalDestination", "field", "first_line"]


def first_line(error: Exception) -> str:
    """What a product says, without its hints, its statement, and the full stop that we add ourselves."""
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def field(name: str) -> str:
    """A staged column as it stands in a statement."""
    return f"staged.{quoted(name)}"


class Fit(NamedTuple):
    """How a staged value becomes one of its column."""

    value: str
    """SQL of the value; NULL where it does not fit."""
    misfit: str = ""
    """SQL condition under which it does not fit; empty: it always does."""


class Plan(NamedTuple):
    """A load as SQL."""

    load: Load
    table: Table
    source: str
    fits: dict[str, Fit]
    key: tuple[str, ...]

    @property
    def misfits(self) -> dict[str, str]:
        """Condition by column, of those that may not take their value."""
        return {name: fit.misfit for name, fit in self.fits.items() if fit.misfit}


class TransactionalDestination(Destination):
    """Rows and ledger entry in one transaction (G5)."""

    folds_case: ClassVar[bool] = False
    """Whether names that differ in case only are the same to it."""

    @abstractmethod
    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the statement's answer; RowsRefused where a row was at fault."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commits what is done in it, or none of it if an error leaves it."""
        return transaction(self.execute)

    @abstractmethod
    def alter(self, table: str, patch: Patch) -> None:
        """Make the table, or what it lacks; called in a transaction."""

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        existing = self.table(wanted.name)
        patch = diff(existing, wanted, folds_case=self.folds_case)
        if existing is not None and not patch:
            return existing
        hint = "If rows repeat the key, remove the repetitions or configure another key."
        with fitting(self.id, wanted.name, hint), self.transaction():
            self.alter(wanted.name, patch)
        result = self.table(wanted.name)
        assert result is not None, "the table was just made"
        return result

    @abstractmethod
    def stage(self, staged: Staged) -> AbstractContextManager[str]:
        """What stands behind FROM to read the staged rows."""

    @abstractmethod
    def fit(self, value: str, staged: pa.DataType, cast: str, column: Column) -> Fit:
        """How `value`, SQL of that type, gets into the column; cast to `cast` first, if that is given."""

    @abstractmethod
    def gathered(self, unmapped: str, misfits: dict[str, str]) -> str:
        """SQL of the `_unmapped_data` of a row: what it has, and its values that do not fit."""

    @abstractmethod
    def last(self, column: str) -> str:
        """SQL aggregate: the value of the last row, by `_headwater_row`, that has one."""

    def load(self, load: Load) -> Loaded:
        if done := self._entry(load.id):
            return done
        staged = Staged(load.files)
        table = self.table(load.table.name)
        if table is None:
            raise LoadRefused(
                f"the table {load.table.name!r} is not there.", hint="Run again: it is made before each load."
            )
        with self.stage(staged) as source:
            plan = self._plan(load, staged, table, source)
            try:
                return self._attempt(plan, staged.rows, ())
            except RowsRefused:
                refused = set_aside(
                    staged.row_ids(), lambda selection: self._failure(plan, selection), self.max_refused
                )
                return self._attempt(plan, staged.rows, refused)

    def loaded(self, ids: Sequence[str]) -> set[str]:
        rows = self.execute(f"SELECT load_id FROM {ledger.LEDGER} WHERE {ledger.ids_condition(ids)}")
        return {row[0] for row in rows}

    def loaded_between(self, low: str, high: str) -> set[str]:
        condition = f"load_id >= {literal(low)} AND load_id < {literal(high)}"
        return {row[0] for row in self.execute(f"SELECT load_id FROM {ledger.LEDGER} WHERE {condition}")}

    def totals(self) -> dict[str, Total]:
        rows = self.execute(
            "SELECT table_name, count(*), sum(row_count), sum(unmapped_count), sum(refused_count) "
            f"FROM {ledger.LEDGER} GROUP BY table_name"
        )
        return ledger.to_totals(rows)

    def column_type(self, column: Column) -> str:
        """The SQL type that a column is made with."""
        return check_sql_type(column.sql_type) if column.sql_type else self.capabilities.types[column.kind]

    def relation(self, name: str) -> str:
        """A table as it stands in a statement."""
        return quoted(name)

    def _entry(self, id: str) -> Loaded | None:
        rows = self.execute(f"SELECT {ledger.SELECTED} FROM {ledger.LEDGER} WHERE load_id = {literal(id)}")
        return ledger.from_row(rows[0]) if rows else None

    def _plan(self, load: Load, staged: Staged, table: Table, source: str) -> Plan:
        fold = str.lower if self.capabilities.folds_case else str
        actual = {fold(name): name for name in table.columns}
        fits = {}
        for name in staged.columns:
            there = actual.get(fold(name))
            if there is None:
                raise LoadRefused(
                    f"the table {table.name!r} has no column {name!r}.",
                    hint="Run again: missing columns are added before each load.",
                )
            wanted = load.table.columns.get(name, table.columns[there])
            fits[name] = self.fit(field(name), staged.types[name], wanted.cast_type, table.columns[there])
        present = {fold(name): name for name in fits}
        key = tuple(present[fold(name)] for name in table.key if fold(name) in present)
        return Plan(load, table, f"{source} AS staged", fits, key if len(key) == len(table.key) else ())

    def _failure(self, plan: Plan, selection: Selection) -> str | None:
        """Why the selected rows are not taken, or None if they are; they are not stored in either case."""
        try:
            with self.transaction():
                self._store(plan, selection, unmapped=self._count_misfits(plan, selection))
                raise _Undo
        except _Undo:
            return None
        except RowsRefused as refusal:
            return refusal.text

    def _attempt(self, plan: Plan, rows: int, refused: tuple[RefusedRow, ...]) -> Loaded:
        selection = Selection(without=tuple(row.row for row in refused))
        unmapped = self._count_misfits(plan, selection)
        loaded = Loaded(id=plan.load.id, rows=rows - len(refused), unmapped=unmapped, refused=refused)
        return self.once(plan.table.name, loaded, lambda: self._store(plan, selection, unmapped))

    def once(self, table: str, loaded: Loaded, store: Callable[[], None]) -> Loaded:
        """Call `store` in the transaction that enters the load in the ledger, unless it is there (G5)."""
        with self.transaction():
            # first the ledger: of two that try the same load at once, the second waits here for the first
            mine = self.execute(
                f"INSERT INTO {ledger.LEDGER} ({ledger.SELECTED}) "
                f"VALUES ({ledger.entry_values(table, loaded)}) "
                "ON CONFLICT (load_id) DO NOTHING RETURNING load_id"
            )
            if mine:
                store()
                crash_point("load.before_commit")
        if mine:
            crash_point("load.after_commit")
            return loaded
        found = self._entry(loaded.id)
        assert found is not None, "a row of the ledger is never deleted"
        return found

    def _count_misfits(self, plan: Plan, selection: Selection) -> int:
        if not plan.misfits:
            return 0
        counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in plan.misfits.values())
        rows = self.execute(f"SELECT {counts} FROM {plan.source} WHERE {selection.condition(field(ROW))}")
        return sum(rows[0])

    def _store(self, plan: Plan, selection: Selection, unmapped: int) -> None:
        values = {name: fit.value for name, fit in plan.fits.items()}
        if unmapped:
            if UNMAPPED not in plan.table.columns:
                column = f"{quoted(UNMAPPED)} {self.capabilities.types[Kind.JSON]}"
                self.execute(f"ALTER TABLE {self.relation(plan.table.name)} ADD COLUMN {column}")
            values[UNMAPPED] = self.gathered(values.get(UNMAPPED, "NULL"), plan.misfits)
        named = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
        base = f"SELECT {named}, {field(ROW)} FROM {plan.source} WHERE {selection.condition(field(ROW))}"
        into = f"INSERT INTO {self.relation(plan.table.name)} AS target ({listed(values)})"
        if not plan.key:
            self.execute(f"{into} SELECT {listed(values)} FROM ({base}) AS base")
            return
        # Rows without a whole key are nobody's successors, though DuckDB would take one NULL for another.
        # Asked for first: after an INSERT of no rows, DuckDB 2.0 miscounts the next one of its transaction.
        rest = f"FROM ({base}) AS base WHERE NOT ({_whole(plan.key)})"
        if self.execute(f"SELECT 1 {rest} LIMIT 1"):
            self.execute(f"{into} SELECT {listed(values)} {rest}")
        update = _update([name for name in values if name not in plan.key])
        self.execute(
            f"{into} {self._latest(plan.key, list(values), base)} ON CONFLICT ({listed(plan.key)}) {update}"
        )

    def _latest(self, key: Sequence[str], names: Sequence[str], base: str) -> str:
        """A query for one row per key: its last values."""
        repeated = (
            f"SELECT {listed(key)} FROM base WHERE {_whole(key)} GROUP BY {listed(key)} HAVING count(*) > 1"
        )
        # mostly no key is repeated, and then nothing need be gathered in memory
        if not self.execute(f"WITH base AS ({base}) SELECT 1 FROM ({repeated}) AS repeated LIMIT 1"):
            return f"SELECT {listed(names)} FROM ({base}) AS base WHERE {_whole(key)}"
        same = " AND ".join(f"repeated.{quoted(name)} = base.{quoted(name)}" for name in key)
        columns = [
            f"base.{quoted(name)}" if name in key else self.last(f"base.{quoted(name)}") for name in names
        ]
        grouped = ", ".join(f"base.{quoted(name)}" for name in key)
        return (
            f"WITH base AS ({base}), repeated AS ({repeated}) "
            f"SELECT {listed(names)} FROM base WHERE {_whole(key)} "
            f"AND NOT EXISTS (SELECT 1 FROM repeated WHERE {same}) UNION ALL "
            f"SELECT {', '.join(columns)} FROM base JOIN repeated ON {same} GROUP BY {grouped}"
        )


class _Undo(Exception):
    """Leaves a transaction whose work was only a trial."""


def _whole(key: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(name)} IS NOT NULL" for name in key)


def _update(names: Sequence[str]) -> str:
    """What an upsert does to the stored row: NULL is a field that the event did not have."""
    if not names:
        return "DO NOTHING"
    changes = (f"{quoted(name)} = coalesce(excluded.{quoted(name)}, target.{quoted(name)})" for name in names)
    return f"DO UPDATE SET {', '.join(changes)}"
