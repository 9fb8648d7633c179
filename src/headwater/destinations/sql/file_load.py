"""Destinations whose product loads files by a command, outside the transaction, into a staging table.

An unfinished staging table is never visible in the target and can be dropped. These products enforce no keys:
the key of each table is recorded in the table `_headwater_keys`.
"""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import msgspec

from headwater.destinations.base import RefusedRow
from headwater.destinations.column_types import Kind
from headwater.destinations.sql import statements
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue, Rows
from headwater.destinations.sql.transfer_columns import (
    ROW_NAME,
    TransferColumn,
    TransferFormat,
    write_transfer_file,
)
from headwater.destinations.staged_files import Form, StagedFiles, form_of
from headwater.destinations.table import UNMAPPED, Column, Patch, Table
from headwater.errors import LoadRefused, WarehouseError

_KEYS = "_headwater_keys"


class FileLoadDestination(SqlDestination):
    """Loads files into a staging table; then stores its rows in one transaction."""

    staging_types: ClassVar[dict[Form, str]]
    """SQL type of each form in the staging table."""
    decimal_type: ClassVar[str] = ""
    """SQL type of FLOAT64, as `table` returns it, where that is a numeric(38,18)."""
    staged_time: ClassVar[str] = "{}"
    """SQL of a time; `{}` is its staged value."""
    transfer_format: ClassVar[TransferFormat] = TransferFormat()

    @abstractmethod
    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        """Names and SQL types of a table's columns, and the primary key that its user declared."""

    @abstractmethod
    def add_columns(self, table: str, definitions: Sequence[str]) -> None:
        """Add columns to a table."""

    @abstractmethod
    def load_files(self, name: str, definitions: str, files: Sequence[Path]) -> None:
        """Create the staging table and load the files into it by the product's command."""

    @abstractmethod
    def try_cast(self, value: str, type: str) -> str:
        """SQL: the text as a value of the type, or NULL if it is none."""

    def upsert(self, target: str, rows: Rows, fresh: str) -> list[str]:
        return [statements.merge(target, rows, fresh, self.dialect)]

    def create_own_tables(self, *further: str) -> None:
        """Create the ledger and the table of keys unless they exist."""
        self.create_ledger(*further)
        names, text = ("table_name", "key_columns"), self.sql_type(Kind.STRING)
        self.create(_KEYS, [f"{self.dialect.quoted(name)} {text}" for name in names])

    # --- tables

    def table(self, name: str) -> Table | None:
        name = self.dialect.fold(name)
        found = self.structure(name)
        if found is None:
            return None
        definitions, users_key = found
        recorded = self.execute(
            f"SELECT {self.dialect.quoted('key_columns')} FROM {self.relation(_KEYS)} "
            f"WHERE {self.dialect.quoted('table_name')} = {self.dialect.literal(name)}"
        )
        key = msgspec.json.decode(recorded[0][0], type=tuple[str, ...]) if recorded else ()
        columns = {
            column: Column(column, Kind.JSON if column == UNMAPPED else self.kind_of(type), type)
            for column, type in definitions
        }
        # the user may have dropped the table and created another
        return Table(name, columns, key if {*key} <= {*columns} else (), users_key)

    def alter(self, table: str, patch: Patch) -> None:
        definitions = self.column_definitions(patch.add)
        if patch.create:
            self.create(table, definitions)
        elif definitions:
            self.add_columns(table, definitions)
        if patch.create or patch.drop_key or patch.set_key:
            fold = self.dialect.fold
            self._record_key(fold(table), [fold(name) for name in patch.set_key])

    def _record_key(self, table: str, key: Sequence[str]) -> None:
        """Replace the recorded key in one transaction: a table that loses its key would append every row."""
        name, keys = self.dialect.quoted("table_name"), self.relation(_KEYS)
        work = [f"DELETE FROM {keys} WHERE {name} = {self.dialect.literal(table)}"]
        if key:
            values = map(self.dialect.literal, (table, msgspec.json.encode(key).decode()))
            columns = self.dialect.listed(["table_name", "key_columns"])
            work.append(f"INSERT INTO {keys} ({columns}) VALUES ({', '.join(values)})")
        self.execute_together(work)

    # --- loads

    def staging_table(self, name: str) -> str:
        """A staging table as it stands in a statement."""
        return self.relation(name)

    @contextmanager
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> Iterator[StagingRelation]:
        transfer = [self._transfer_column(column, number) for number, column in enumerate(columns)]
        forms = {ROW_NAME: Form.INTEGER} | {each.name: each.form for each in transfer}
        forms |= {each.json_name: Form.TEXT for each in transfer if each.json_name}
        definitions = ", ".join(
            f"{self.dialect.quoted(name)} {self.staging_types[form]}" for name, form in forms.items()
        )
        name = f"_headwater_staged_{uuid.uuid4().hex}"
        with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
            path = Path(folder) / "rows.parquet"
            refused = write_transfer_file(path, staged, transfer, self.transfer_format)
            self._check_refused(refused, staged.rows)
            try:
                self.load_files(name, definitions, [path] if path.exists() else [])
                yield StagingRelation(
                    self.staging_table(name),
                    self.dialect.staged(ROW_NAME),
                    {each.column.target.name: self._column_value(each) for each in transfer},
                    next(
                        (self.dialect.staged(c.name) for c in transfer if c.column.target.name == UNMAPPED),
                        "NULL",
                    ),
                    tuple(refused),
                )
            finally:
                self._drop_staging_table(name)

    def _check_refused(self, refused: Sequence[RefusedRow], rows: int) -> None:
        if len(refused) > self.max_refused:
            raise LoadRefused(
                f"{len(refused)} of {rows} rows are refused; the last reason: {refused[-1].reason}",
                hint="Nothing was loaded. Change the mapping; then run again.",
            )

    def _drop_staging_table(self, name: str) -> None:
        try:
            self.execute(f"DROP TABLE IF EXISTS {self.staging_table(name)}")
        except WarehouseError:
            pass  # the product drops it with its session or after its expiration

    def _transfer_column(self, column: StagedColumn, number: int) -> TransferColumn:
        form = None if column.cast_type else self._fitting_form(column)
        always_fits = form is not None and form is not Form.DECIMAL
        json_name = "" if always_fits else f"j{number}"
        return TransferColumn(column, form or Form.TEXT, f"c{number}", json_name, form is None)

    def _fitting_form(self, column: StagedColumn) -> Form | None:
        """The form in which the column needs no cast; None if it needs one."""
        form, sql_type = form_of(column.type), column.target.sql_type
        if sql_type == self.decimal_type and form is Form.FLOAT:
            return Form.DECIMAL
        native = self.native_forms.get(sql_type)
        return native if native in (form, Form.TEXT) else None

    def _column_value(self, each: TransferColumn) -> ColumnValue:
        value = self._value(each)
        if not each.json_name:
            return ColumnValue(value)
        json = self.dialect.staged(each.json_name)
        return ColumnValue(value, f"{json} IS NOT NULL AND {value} IS NULL", json)

    def _value(self, each: TransferColumn) -> str:
        value, column = self.dialect.staged(each.name), each.column
        if each.is_cast:
            if column.cast_type:
                cast = self.try_cast(value, column.cast_type)
                value = f"CAST({cast} AS {self.staging_types[Form.TEXT]})"
            return self.try_cast(value, column.target.sql_type)
        if each.form is Form.TIME:
            return self.staged_time.format(value)
        return self.dialect.parse_json(value) if column.target.kind is Kind.JSON else value
