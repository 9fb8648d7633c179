"""Merging destinations whose connection takes BEGIN, COMMIT and ROLLBACK as statements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from headwater.destinations import ledger
from headwater.destinations.base import Destination, Load, Loaded, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import fitting
from headwater.destinations.sql import statements as merge_sql
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.merge_load import MergeLoad
from headwater.destinations.sql.transfer_columns import Form
from headwater.destinations.table import UNMAPPED, Column, Table, check_names, check_sql_type, diff
from headwater.errors import WarehouseError

__all__ = ["KEYS", "MergingDestination", "SqlMergingDestination", "Undo", "transaction"]


@contextmanager
def transaction(execute: Callable[[str], Any]) -> Iterator[None]:
    """What is executed in the block is kept if it ends well."""
    execute("BEGIN TRANSACTION")
    try:
        yield
        execute("COMMIT")
    except BaseException:
        try:
            execute("ROLLBACK")
        except WarehouseError:
            pass  # a failed COMMIT has rolled back already, or the connection is gone
        raise


KEYS = "_headwater_keys"


class MergingDestination(Destination):
    """Rows by way of a table beside their own, which the product's load command fills."""

    sql: ClassVar[Dialect] = Dialect()
    staging_types: ClassVar[dict[Form, str]]
    """SQL type of each form in the table beside."""
    natural: ClassVar[dict[str, Form]]
    """SQL types of columns that take every value of the form, as `table` tells them."""
    decimal_type: ClassVar[str] = ""
    """SQL type of FLOAT64, where that is a numeric(38,18) as `table` tells it."""
    time_type: ClassVar[pa.DataType] = pa.timestamp("us", "UTC")
    """As what times travel."""
    now: ClassVar[str] = "CURRENT_TIMESTAMP"
    """SQL of this moment."""
    max_text_bytes: ClassVar[int | None] = None
    keeps_nul: ClassVar[bool] = True

    @abstractmethod
    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the statement's answer; RowsRefused where a row was at fault."""

    @abstractmethod
    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        """Names and SQL types of a table's columns, and the primary key that its user declared."""

    @abstractmethod
    def kind_of(self, sql_type: str) -> Kind:
        """What values for a column of the type are staged as."""

    @abstractmethod
    def add_columns(self, table: str, columns: Sequence[str]) -> None:
        """Alter the table; `columns` are names with types."""

    @abstractmethod
    def fill(self, name: str, columns: str, files: Sequence[Path]) -> None:
        """Make the table beside anew and have the product load the files into it."""

    @abstractmethod
    def tried(self, value: str, type: str) -> str:
        """SQL: the text as a value of the type, or NULL if it is none."""

    @abstractmethod
    def moment(self, value: str) -> str:
        """SQL of a time that travelled as `time_type`."""

    @abstractmethod
    def commit(self, table: str, loaded: Loaded, statements: Sequence[str]) -> bool:
        """The statements and the ledger's entry in one transaction; False if the entry is there already."""

    @abstractmethod
    def attempt(self, statements: Sequence[str]) -> None:
        """Do them, and undo them."""

    def json(self, text: str) -> str:
        """SQL of a JSON text as `_unmapped_data` holds it."""
        return text

    def upsert(self, target: str, rows: merge_sql.Rows, *, any_repeated: bool) -> list[str]:
        """The statements that merge the rows that have a key."""
        fresh = merge_sql.latest(rows, self.sql, any_repeated=any_repeated)
        return [merge_sql.merge(target, rows, fresh, self.sql)]

    # --- tables

    def relation(self, name: str) -> str:
        """A table as it stands in a statement."""
        return self.sql.quoted(name)

    def column_type(self, column: Column) -> str:
        """The SQL type that a column is made with."""
        return check_sql_type(column.sql_type) if column.sql_type else self.capabilities.types[column.kind]

    def make_own_tables(self) -> None:
        """The ledger and the keys, where they are not there."""
        text, number = self.capabilities.types[Kind.STRING], self.capabilities.types[Kind.INT64]
        moment = self.capabilities.types[Kind.TIMESTAMP]
        types = [text, text, number, number, number, text]
        columns = [f"{self.sql.quoted(n)} {t}" for n, t in zip(ledger.COLUMNS, types, strict=True)]
        columns += [f"{self.sql.quoted('attempt')} {text}", f"{self.sql.quoted('loaded_at')} {moment}"]
        self.create(ledger.LEDGER, columns)
        self.create(KEYS, [f"{self.sql.quoted(name)} {text}" for name in ("table_name", "key_columns")])

    def create(self, name: str, columns: Sequence[str]) -> None:
        """Make a table, unless it is there."""
        self.execute(f"CREATE TABLE IF NOT EXISTS {self.relation(name)} ({', '.join(columns)})")

    def table(self, name: str) -> Table | None:
        name = self.sql.fold(name)
        found = self.structure(name)
        if found is None:
            return None
        columns, users_key = found
        noted = self.execute(
            f"SELECT {self.sql.quoted('key_columns')} FROM {self.relation(KEYS)} "
            f"WHERE {self.sql.quoted('table_name')} = {self.sql.literal(name)}"
        )
        key = msgspec.json.decode(noted[0][0], type=tuple[str, ...]) if noted else ()
        made = {
            column: Column(column, Kind.JSON if column == UNMAPPED else self.kind_of(type), type)
            for column, type in columns
        }
        # the table may have been made anew behind our back
        return Table(name, made, key if {*key} <= {*made} else (), users_key)

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        fold = self.sql.fold
        existing = self.table(wanted.name)
        patch = diff(existing, wanted, folds_case=self.capabilities.folds_case)
        if existing is not None and not patch:
            return existing
        columns = [f"{self.sql.quoted(column.name)} {self.column_type(column)}" for column in patch.add]
        with fitting(self.id, wanted.name, "Mend the table or the mapping; then run again."):
            if patch.create:
                self.create(wanted.name, columns)
            elif columns:
                self.add_columns(wanted.name, columns)
            if patch.create or patch.drop_key or patch.set_key:
                self._note_key(fold(wanted.name), [fold(name) for name in patch.set_key])
        result = self.table(wanted.name)
        assert result is not None, "the table was just made"
        return result

    def _note_key(self, table: str, key: Sequence[str]) -> None:
        name, keys = self.sql.quoted("table_name"), self.relation(KEYS)
        self.execute(f"DELETE FROM {keys} WHERE {name} = {self.sql.literal(table)}")
        if key:
            noted = self.sql.literal(msgspec.json.encode(key).decode())
            columns = self.sql.listed(["table_name", "key_columns"])
            self.execute(f"INSERT INTO {keys} ({columns}) VALUES ({self.sql.literal(table)}, {noted})")

    # --- the ledger

    def loaded(self, ids: Sequence[str]) -> set[str]:
        if not ids:
            return set()
        return self._ids(f"{self.sql.quoted('load_id')} IN ({', '.join(map(self.sql.literal, ids))})")

    def loaded_between(self, low: str, high: str) -> set[str]:
        id = self.sql.quoted("load_id")
        return self._ids(f"{id} >= {self.sql.literal(low)} AND {id} < {self.sql.literal(high)}")

    def totals(self) -> dict[str, Total]:
        table, *counts = (self.sql.quoted(name) for name in ledger.COLUMNS[1:5])
        sums = ", ".join(f"sum({count})" for count in counts)
        rows = self.execute(f"SELECT {table}, count(*), {sums} FROM {self.ledger} GROUP BY {table}")
        return ledger.to_totals([(name, *map(int, numbers)) for name, *numbers in rows])

    @property
    def ledger(self) -> str:
        """The ledger as it stands in a statement."""
        return self.relation(ledger.LEDGER)

    def entry(self, table: str, loaded: Loaded, attempt: str = "") -> tuple[str, str]:
        """Names and values of a load's row in the ledger; `attempt` tells who entered it."""
        refused = msgspec.json.encode(loaded.refused).decode()
        numbers = map(str, (loaded.rows, loaded.unmapped, len(loaded.refused)))
        id, name, told, by = map(self.sql.literal, (loaded.id, table, refused, attempt))
        columns = self.sql.listed([*ledger.COLUMNS, "attempt", "loaded_at"])
        return columns, ", ".join([id, name, *numbers, told, by, self.now])

    def _ids(self, condition: str) -> set[str]:
        rows = self.execute(f"SELECT {self.sql.quoted('load_id')} FROM {self.ledger} WHERE {condition}")
        return {str(row[0]) for row in rows}

    def found(self, id: str) -> Loaded | None:
        """What the ledger says about a load."""
        rows = self.execute(
            f"SELECT {self.sql.listed(ledger.COLUMNS)} FROM {self.ledger} "
            f"WHERE {self.sql.quoted('load_id')} = {self.sql.literal(id)}"
        )
        return ledger.from_row(rows[0]) if rows else None

    # --- loads

    def load(self, load: Load) -> Loaded:
        return self.found(load.id) or MergeLoad(self, load).run()

    def relation_beside(self, name: str) -> str:
        """The table beside as it stands in a statement."""
        return self.relation(name)

    def drop_beside(self, name: str) -> None:
        """Away with the table beside; if that fails, it goes with its session or its time."""
        try:
            self.execute(f"DROP TABLE IF EXISTS {self.relation_beside(name)}")
        except WarehouseError:
            pass


class Undo(Exception):
    """Raised inside a transaction whose work is not to stay."""


class SqlMergingDestination(MergingDestination):
    """With transactions: all of a block, or nothing of it."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is executed in the block is kept if it ends well."""
        return transaction(self.execute)

    def attempt(self, statements: Sequence[str]) -> None:
        try:
            with self.transaction():
                for statement in statements:
                    self.execute(statement)
                raise Undo
        except Undo:
            pass
