"""The destination for SQL databases: one load is one transaction that also enters it in the ledger (G5).

In the order of `load`; a product implements the hooks.

    ledger            the load is entered already: return its entry
    staging_relation  hook: the product reads the staged files, or copies them beside the target
    count             values that do not fit their column; they go to `_unmapped_data`
    claim_load        hook: enter the load in the ledger, inside the transaction
    upsert            hook: the statement that stores rows by their key
    refused rows      found by trying parts of the load in transactions that are rolled back (G6)

DuckDB and Postgres derive from `SqlDestination`; Snowflake, BigQuery and Redshift, which load files into a
staging table first, derive from `file_load.FileLoadDestination`. ClickHouse, which has no transactions, has a
`commit_load` of its own.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa

from headwater.destinations.base import Destination, Healed, Load, Loaded, RefusedRow, Total
from headwater.destinations.column_types import Kind, kind_of_sql
from headwater.destinations.refused_rows import RowSelection, RowsRefused, find_refused_rows
from headwater.destinations.sql import statements
from headwater.destinations.sql.dialect import ASCII_LOWER, Dialect
from headwater.destinations.sql.heal import Healing
from headwater.destinations.sql.ledger import LEDGER, Ledger
from headwater.destinations.sql.ledger_folding import Entry, fold
from headwater.destinations.sql.registry import REGISTRY, Registry
from headwater.destinations.sql.statements import ColumnValue, Rows
from headwater.destinations.staged_files import Form, StagedFiles, form_of
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
from headwater.errors import (
    DestinationUnavailable,
    LoadRefused,
    TableBusy,
    TableRefused,
    WarehouseError,
)
from headwater.system.crash_points import crash_point

_FOLDED_AT_ONCE = 20_000


class StagedColumn(NamedTuple):
    """A column of the staged files and the column of the table that takes it."""

    name: str
    type: pa.DataType
    target: Column
    cast_type: str
    """SQL type that values are cast to before the type of the column; empty: none."""


class StagingRelation(NamedTuple):
    """Staged rows that the product can query; its alias is `staged`."""

    source: str
    """The SQL after FROM."""
    row: str
    """SQL of the row number."""
    values: dict[str, ColumnValue]
    """By column of the target."""
    unmapped: str = "NULL"
    """SQL of the staged `_unmapped_data` as text."""
    refused: tuple[RefusedRow, ...] = ()
    """Rows that could not be copied, and are not in the relation."""

    @property
    def may_not_fit(self) -> dict[str, ColumnValue]:
        """The columns with values that may not fit."""
        return {name: value for name, value in self.values.items() if value.not_fitting}


class _RollBack(Exception):
    """Raised in a transaction to undo it."""


class SqlDestination(Destination):
    """Stores rows and ledger entry in one transaction."""

    dialect: ClassVar[Dialect] = Dialect()
    now: ClassVar[str] = "CURRENT_TIMESTAMP"
    """SQL of the current time."""
    kinds: ClassVar[dict[str, Kind]] = {}
    """Kinds of the product's own SQL types, by name in lower case; those of standard SQL are known."""
    native_forms: ClassVar[dict[str, Form]] = {}
    """By SQL type, as `table` returns it: the form of which a column takes every value."""
    creates_in_transactions: ClassVar[bool] = True
    """Whether a table can be created in the transaction that registers it."""

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self.ledger = Ledger(self.relation(LEDGER), self.dialect)
        self._in_transaction = False
        self._ours: set[str] = set()

    @property
    def registry(self) -> Registry:
        """The statements on the registry of tables."""
        return Registry(self.relation(REGISTRY), self.relation(LEDGER), self.dialect)

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the connection if preparing it fails: the next `connect` must not take it for ready."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows; RowsRefused where a row is at fault."""

    def execute_all(self, work: Sequence[str]) -> None:
        """Execute several statements."""
        for statement in work:
            self.execute(statement)

    @abstractmethod
    def alter(self, table: str, patch: Patch) -> None:
        """Create or alter a table; all of the patch, or a part that the next call completes."""

    @abstractmethod
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> AbstractContextManager[StagingRelation]:
        """Make the staged rows readable by SQL for the length of the block."""

    def claim_load(self, table: str, loaded: Loaded) -> bool:
        """Enter a load in the ledger, in the load's transaction; False if another transaction has done so.

        Of two transactions that claim the same load, the second waits for the first.
        """
        return bool(
            self.execute(
                f"{self.ledger.insert(table, loaded, loaded_at=self.now)} "
                "ON CONFLICT (load_id) DO NOTHING RETURNING load_id"
            )
        )

    def upsert(self, target: str, rows: Rows, fresh: str) -> list[str]:
        """The statements that store the rows of the query `fresh`, which has one row for each key."""
        return [statements.insert_on_conflict(target, rows, fresh, self.dialect)]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block, or roll them back if it raises; a block in it joins it."""
        if self._in_transaction:
            yield
            return
        self.execute("BEGIN TRANSACTION")
        self._in_transaction = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            try:
                self.execute("ROLLBACK")
            except WarehouseError:
                pass  # a failed COMMIT has rolled back already, or the connection is lost
            raise
        finally:
            self._in_transaction = False

    def execute_together(self, work: Sequence[str]) -> None:
        """Execute the statements in one transaction."""
        with self.transaction():
            self.execute_all(work)

    def commit_load(self, table: str, loaded: Loaded, work: Sequence[str]) -> bool:
        """Execute the statements and enter the load, in one transaction; False if it is entered already."""
        return self.commit_once(table, loaded, lambda: self.execute_all(work))

    def commit_once(self, table: str, loaded: Loaded, store: Callable[[], None]) -> bool:
        """Call `store` in the transaction that enters the load; False if it is entered already."""
        try:
            with self.transaction():
                with self.using_own_tables():
                    is_first = self.claim_load(table, loaded)
                if not is_first:
                    raise _RollBack
                store()
                crash_point("load.before_commit")
        except _RollBack:
            return False
        crash_point("load.after_commit")
        return True

    def try_and_roll_back(self, work: Sequence[str]) -> None:
        """Execute the statements and undo them; RowsRefused where a row is at fault."""
        try:
            with self.transaction():
                self.execute_all(work)
                raise _RollBack
        except _RollBack:
            pass

    # --- tables

    def relation(self, name: str) -> str:
        """A table as it stands in a statement."""
        return self.dialect.quoted(name)

    def sql_type(self, kind: Kind) -> str:
        """The type of a kind as it stands in a statement."""
        return self.capabilities.types[kind]

    def kind_of(self, sql_type: str) -> Kind:
        """The kind that values for a column of the type are staged as."""
        return kind_of_sql(sql_type, self.kinds)

    def column_type(self, column: Column) -> str:
        """The SQL type of a new column."""
        return check_sql_type(column.sql_type) if column.sql_type else self.sql_type(column.kind)

    def column_definitions(self, columns: Sequence[Column]) -> list[str]:
        """Names and types of new columns."""
        return [f"{self.dialect.quoted(column.name)} {self.column_type(column)}" for column in columns]

    def create(self, name: str, definitions: Sequence[str]) -> None:
        """Create a table unless it exists."""
        self.execute(f"CREATE TABLE IF NOT EXISTS {self.relation(name)} ({', '.join(definitions)})")

    def create_ledger(self, *further: str) -> None:
        """Create ledger and registry unless they exist.

        `further` are columns or constraints of the ledger.
        """
        types = {kind: self.sql_type(kind) for kind in Kind}
        loaded_at = f"{self.dialect.quoted('loaded_at')} {types[Kind.TIMESTAMP]}"
        self.create(LEDGER, [*self.ledger.column_definitions(types), loaded_at, *further])
        self.create(REGISTRY, self.registry.column_definitions(types))

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        existing = self.table(wanted.name)
        if existing is not None:
            self.check_ours(wanted.name)
        patch = diff(existing, wanted, folds_case=self.capabilities.folds_case)
        if existing is not None and not patch:
            return existing
        try:
            if patch.create:
                self._create_ours(wanted.name, patch)
            else:
                self.alter(wanted.name, patch)
        except LoadRefused as refusal:
            text = f"destination {self.id}: the table {wanted.name!r} cannot be made to fit: {refusal.text}"
            hint = "If rows repeat the key, remove the repetitions or configure another key; then run again."
            raise TableRefused(text, hint=hint) from refusal
        result = self.table(wanted.name)
        assert result is not None, "the table was just created"
        return result

    # --- wider columns

    row_id: ClassVar[str] = ""
    """SQL of a row's identity within a transaction; empty: values of `_unmapped_data` cannot be moved."""
    row_id_type: ClassVar[str] = "bigint"

    def widen_statements(self, table: Table, column: str, kind: Kind) -> list[str]:
        """The statements that give a column a wider kind; empty: the product cannot do that."""
        return []

    def has_own_type(self, column: Column) -> bool:
        """Whether a column has the type that Headwater gives to its kind."""
        return column.sql_type == self.capabilities.types[column.kind]

    def inexact_sql(self, column: Column, kind: Kind) -> str:
        """SQL condition under which a value of the column would change in the wider kind."""
        is_double = kind is Kind.FLOAT64 and "(" not in self.capabilities.types[Kind.FLOAT64]
        return f"abs({self.dialect.quoted(column.name)}) > {1 << 53}" if is_double else ""

    def chunks(self, table: str) -> list[str]:
        """SQL conditions that cut the rows of a table in parts that fit in memory."""
        return ["TRUE"]

    def lock_table(self, table: str) -> None:
        """Keep other sessions from changing rows until the transaction ends."""

    def widen(self, name: str, kinds: Mapping[str, Kind], *, max_rows: int) -> Table:
        table = self.table(name)
        if table is None:
            raise TableRefused(f"destination {self.id}: there is no table {name!r}.")
        self.check_ours(name)
        with self.transaction():
            [[rows]] = self.execute(f"SELECT count(*) FROM {self.relation(name)}")
            if int(rows) > max_rows:
                raise TableRefused(
                    f"destination {self.id}: {name!r} has {rows:,} rows, and is not rewritten.",
                    hint=f"Raise `max_widen_rows` of the destination, which is {max_rows:,}.",
                )
            for column, kind in kinds.items():
                found = table.columns[column]
                inexact = self.inexact_sql(found, kind)
                query = f"SELECT 1 FROM {self.relation(name)} WHERE {inexact} LIMIT 1"
                if inexact and self.execute(query):
                    kind = Kind.STRING
                work = self.widen_statements(table, column, kind)
                if not work or not self.has_own_type(found):
                    raise TableRefused(
                        f"destination {self.id}: the column {column!r} of {name!r} ({found.sql_type}) "
                        f"cannot become {self.sql_type(kind)}."
                    )
                self.execute_all(work)
        widened = self.table(name)
        assert widened is not None, "the table was just altered"
        return widened

    def heal(self, name: str, *, widen: bool, max_rows: int) -> Healed:
        table = self.table(name)
        if not self.row_id:
            return super().heal(name, widen=widen, max_rows=max_rows)
        if table is None or UNMAPPED not in table.columns:
            return Healed()
        self.check_ours(name)
        widened: dict[str, Kind] = {}
        with self.transaction():
            self.lock_table(name)
            if widen and (wider := Healing(self, table).wider_kinds(self.chunks(name))):
                table = self.widen(name, wider, max_rows=max_rows)
                widened = {column: table.columns[column].kind for column in wider}
            healed = Healing(self, table).run(self.chunks(name))
        return msgspec.structs.replace(healed, widened=widened)

    # --- ownership

    def check_ours(self, name: str) -> None:
        """Raise TableNotAllowed for an existing table that Headwater must not write (G12)."""
        own = self._registered_name(name)
        if own in self._ours:
            return
        with self.using_own_tables():
            if not self.execute(self.registry.has(own)):
                if self.execute(self.registry.has_load(name, own)):
                    origin = "ledger"
                elif self.adopts(own):
                    origin = "adopted"
                else:
                    raise self.foreign_table_error(name)
                self.execute(self.registry.insert(own, origin))
        self._ours.add(own)

    def _create_ours(self, name: str, patch: Patch) -> None:
        """Create and register a table; CREATE fails if another program has created it meanwhile."""
        own = self._registered_name(name)
        self._ours.discard(own)  # the user has dropped it
        register = self.registry.insert(own, "created", int(time.time()))
        if self.creates_in_transactions:
            with self.transaction():
                self.alter(name, patch)
                self.execute(register)
        else:
            # in this order: a crash in between leaves a table that must be adopted, never one that is taken
            self.alter(name, patch)
            self.execute(register)
        self._ours.add(own)

    def tables_created_since(self, seconds: int) -> int:
        with self.using_own_tables():
            return int(self.execute(self.registry.created_since(seconds))[0][0])

    def _registered_name(self, name: str) -> str:
        name = self.dialect.fold(name)
        return name.translate(ASCII_LOWER) if self.capabilities.folds_case else name

    @contextmanager
    def using_own_tables(self) -> Iterator[None]:
        """A lock on the ledger or the registry stops every load: then the destination is unavailable."""
        try:
            yield
        except TableBusy as busy:
            raise DestinationUnavailable(busy.text, hint=busy.hint) from busy

    # --- the ledger

    def loaded(self, ids: Sequence[str]) -> set[str]:
        with self.using_own_tables():
            return {str(row[0]) for row in self.execute(self.ledger.ids_query(ids))} if ids else set()

    def loaded_between(self, low: str, high: str) -> set[str]:
        return {str(row[0]) for row in self.execute(self.ledger.between_query(low, high))}

    def fold_ledger(self, days: int) -> int:
        query = self.ledger.old_stream_loads_query(self.days_ago(days), _FOLDED_AT_ONCE)
        entries = [
            Entry(str(id), str(table), *map(int, counts)) for id, table, *counts in self.execute(query)
        ]
        fewer = 0
        for folded in fold(entries):
            self.execute_together(self.ledger.replace(folded, self.now, **self.folded_columns))
            fewer += len(folded.replaced) - 1
        return fewer

    folded_columns: ClassVar[Mapping[str, str]] = {}
    """SQL of further columns of an entry of several loads."""

    def days_ago(self, days: int) -> str:
        """SQL of a time that many days before now."""
        return f"{self.now} - INTERVAL '{days} days'"

    def totals(self) -> dict[str, Total]:
        return self.ledger.totals(self.execute(self.ledger.totals_query()))

    def ledger_entry(self, id: str) -> Loaded | None:
        """The answer to a load that is entered already."""
        with self.using_own_tables():
            rows = self.execute(self.ledger.entry_query(id))
        return self.ledger.loaded(rows[0]) if rows else None

    # --- loads

    def takes_as_staged(self, column: StagedColumn) -> bool:
        """Whether the column of the table takes every value without a cast."""
        form = self.native_forms.get(column.target.sql_type)
        return not column.cast_type and form is form_of(column.type)

    def with_staged_names(
        self,
        source: str,
        columns: Sequence[StagedColumn],
        column_value: Callable[[StagedColumn], ColumnValue],
    ) -> StagingRelation:
        """The relation of a source whose columns have their names in the staged files."""
        names = {column.target.name: self.dialect.staged(column.name) for column in columns}
        unmapped = names.get(UNMAPPED, "NULL")
        values = {
            column.target.name: self.unless_aside(column, column_value(column), unmapped)
            for column in columns
        }
        return StagingRelation(source, self.dialect.staged(ROW), values, unmapped)

    def unless_aside(self, column: StagedColumn, value: ColumnValue, unmapped: str) -> ColumnValue:
        """The value, with the condition that `unmapped`, the staged `_unmapped_data`, does not have it."""
        if form_of(column.type) is not Form.TIME:
            return value
        return statements.unless_aside(value, column.name, unmapped, self.dialect)

    def load(self, load: Load) -> Loaded:
        if done := self.ledger_entry(load.id):
            return done
        staged = StagedFiles(load.files)
        table = self.table(load.table.name)
        if table is None:
            raise LoadRefused(
                f"the table {load.table.name!r} does not exist.",
                hint="Run again: it is created before each load.",
            )
        self.check_ours(table.name)
        try:
            return self._load_staged(load, table, staged)
        except LoadRefused:
            staged.check()
            raise

    def _load_staged(self, load: Load, table: Table, staged: StagedFiles) -> Loaded:
        with self.staging_relation(staged, self.match_columns(staged, load, table)) as relation:
            unmapped = self._count_not_fitting(relation, RowSelection())
            if unmapped and UNMAPPED not in table.columns:
                # before the transaction: some products do not alter tables in one
                columns = {**table.columns, UNMAPPED: Column(UNMAPPED, Kind.JSON)}
                table = self.patch(Table(table.name, columns, table.primary_key))
            try:
                return self._store(load.id, table, staged.rows, relation, unmapped)
            except RowsRefused:
                staged.check()
                not_copied = {each.row for each in relation.refused}
                ids = staged.row_ids()
                refused = find_refused_rows(
                    [row for row in ids if row not in not_copied] if not_copied else ids,
                    lambda selection: self._refusal(table, relation, selection),
                    self.max_refused,
                )
                unmapped = self._count_not_fitting(relation, _without(refused))
                return self._store(load.id, table, staged.rows, relation, unmapped, refused)

    def match_columns(self, staged: StagedFiles, load: Load, table: Table) -> list[StagedColumn]:
        """The staged columns, each with its column of the table; LoadRefused if there is none."""
        matched = []
        for name in staged.columns:
            target = self._column(table, name)
            if target is None:
                raise LoadRefused(
                    f"the table {table.name!r} has no column {name!r}.",
                    hint="Run again: missing columns are added before each load.",
                )
            cast = load.table.columns.get(name, target).cast_type
            matched.append(StagedColumn(name, staged.types[name], target, cast and check_sql_type(cast)))
        if len({column.target.name for column in matched}) < len(matched):
            raise LoadRefused(f"two staged columns are the same column of the table {table.name!r}.")
        return matched

    def _column(self, table: Table, name: str) -> Column | None:
        """The column of a table that the product finds under a name."""
        name = self.dialect.fold(name)
        if name in table.columns or not self.capabilities.folds_case:
            return table.columns.get(name)
        lower = name.lower()
        return next((column for column in table.columns.values() if column.name.lower() == lower), None)

    def _store(
        self,
        id: str,
        table: Table,
        rows: int,
        relation: StagingRelation,
        unmapped: int,
        refused: tuple[RefusedRow, ...] = (),
    ) -> Loaded:
        """Commit the rows that are not refused."""
        selection = _without(refused)
        refused = tuple(sorted((*relation.refused, *refused), key=lambda each: each.row))
        loaded = Loaded(id=id, rows=rows - len(refused), unmapped=unmapped, refused=refused)
        work = self._store_statements(table, relation, selection, unmapped) if loaded.rows else []
        return loaded if self.commit_load(table.name, loaded, work) else self.entered(id)

    def entered(self, id: str) -> Loaded:
        """The ledger entry of a load that another transaction has committed."""
        found = self.ledger_entry(id)
        assert found is not None, "an entry of the ledger is never deleted"
        return found

    def _refusal(self, table: Table, relation: StagingRelation, selection: RowSelection) -> str | None:
        """Why the table refuses the selected rows, or None if it takes them; nothing is stored."""
        unmapped = self._count_not_fitting(relation, selection)
        try:
            self.try_and_roll_back(self._store_statements(table, relation, selection, unmapped))
        except RowsRefused as refusal:
            return refusal.text
        return None

    def _count_not_fitting(self, relation: StagingRelation, selection: RowSelection) -> int:
        if not relation.may_not_fit:
            return 0
        condition = selection.condition(relation.row)
        query = statements.count_not_fitting(relation.source, condition, relation.may_not_fit)
        return sum(int(count or 0) for count in self.execute(query)[0])

    def _store_statements(
        self, table: Table, relation: StagingRelation, selection: RowSelection, unmapped: int
    ) -> list[str]:
        """The statements that store the selected rows."""
        values = {name: column.value for name, column in relation.values.items()}
        if unmapped:
            values[UNMAPPED] = statements.with_unmapped_sql(
                values.get(UNMAPPED, "NULL"), relation.unmapped, relation.may_not_fit, self.dialect
            )
        key = [column.name for name in table.key if (column := self._column(table, name)) is not None]
        has_whole_key = bool(key) and {*key} <= {*values} and len(key) == len(table.key)
        condition = selection.condition(relation.row)
        rows = Rows(relation.source, relation.row, values, condition, tuple(key) if has_whole_key else ())
        return self.store_statements(table, rows)

    def store_statements(self, table: Table, rows: Rows) -> list[str]:
        """The statements that append the rows, or upsert them by their key."""
        target = self.relation(table.name)
        if not rows.key:
            return [statements.insert(target, rows, self.dialect)]
        # Most loads have no row without its key and no repeated key; both statements are cheaper then.
        work = []
        if self.execute(statements.missing_key_query(rows, self.dialect)):
            work.append(statements.insert_without_key(target, rows, self.dialect))
        any_repeated = bool(self.execute(statements.repeated_key_query(rows, self.dialect)))
        fresh = statements.latest_per_key(rows, self.dialect, any_repeated=any_repeated)
        return work + self.upsert(target, rows, fresh)


def _without(refused: Sequence[RefusedRow]) -> RowSelection:
    return RowSelection(without=tuple(each.row for each in refused))
