"""Destinations whose product loads files by a command, outside the transaction, into a staging table.

The staged files are written again with types that every product reads alike. A column becomes `c0`, `c1`, …:
in the type of its target where every value fits, otherwise as text that the product tries to cast. A column
whose values may not fit is also written as JSON text, `j0`, `j1`, …, for `_unmapped_data`.

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
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.destinations.base import RefusedRow
from headwater.destinations.column_types import Kind
from headwater.destinations.json_entries import JsonLimits, column_of_kept_values
from headwater.destinations.sql import statements
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue, Rows
from headwater.destinations.staged_files import Form, StagedFiles, form_of
from headwater.destinations.table import ROW, UNMAPPED, Column, Patch, Table
from headwater.errors import LoadRefused, WarehouseError

_KEYS = "_headwater_keys"
_ROW_NAME = "r"
"""The row number in the files."""
_DECIMAL = pa.decimal128(38, 18)
_LARGE, _SMALL = 1e20, 1e-18
_TIME = "%Y-%m-%d %H:%M:%S"
_BATCH_ROWS = 65_536


class TransferFormat(NamedTuple):
    """What the files of a product may contain."""

    time_type: pa.DataType = pa.timestamp("us", "UTC")
    """Arrow type of times."""
    max_text_bytes: int | None = None
    """Size of the longest text; rows with a longer one are refused."""
    allows_nul: bool = True
    json_limits: JsonLimits | None = None
    """Of the type of `_unmapped_data`; None: it keeps every text."""


class _TransferColumn(NamedTuple):
    """A column of the files."""

    column: StagedColumn
    name: str
    form: Form | None
    """The form in which every value needs no cast; None if the product casts it from text."""
    json_name: str
    """Name of the column with the JSON text; empty: every value fits."""

    @property
    def written_form(self) -> Form:
        return self.form or Form.TEXT


class FileLoadDestination(SqlDestination):
    """Loads a file into a staging table; then stores its rows in one transaction."""

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
    def load_file(self, name: str, file: Path) -> None:
        """Load a file into the staging table by the product's command."""

    @abstractmethod
    def create_staging_table(self, name: str, definitions: str) -> None:
        """Create a staging table that is dropped, or can be, if this process dies."""

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
            self.execute(f"CREATE TABLE {self.relation(table)} ({', '.join(definitions)})")
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
        nuls = set() if self.transfer_format.allows_nul else staged.texts_with_nul()
        transfer = [
            self._transfer_column(column, number, has_nul=column.name in nuls)
            for number, column in enumerate(columns)
        ]
        forms = {_ROW_NAME: Form.INTEGER} | {each.name: each.written_form for each in transfer}
        forms |= {each.json_name: Form.TEXT for each in transfer if each.json_name}
        definitions = ", ".join(
            f"{self.dialect.quoted(name)} {self.staging_types[form]}" for name, form in forms.items()
        )
        texts = {each.column.target.name: self.dialect.staged(each.name) for each in transfer}
        name = f"_headwater_staged_{uuid.uuid4().hex}"
        with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
            path = Path(folder) / "rows.parquet"
            refused = _write_file(path, list(forms), staged, transfer, self.transfer_format)
            if len(refused) > self.max_refused:
                reason = refused[-1].reason
                raise LoadRefused(
                    f"{len(refused)} of {staged.rows} rows are refused; the last reason: {reason}",
                    hint="Nothing was loaded. Change the mapping; then run again.",
                )
            try:
                self.create_staging_table(name, definitions)
                if path.exists():
                    self.load_file(name, path)
                unmapped = texts.get(UNMAPPED, "NULL")
                yield StagingRelation(
                    self.staging_table(name),
                    self.dialect.staged(_ROW_NAME),
                    {
                        each.column.target.name: self.unless_aside(
                            each.column, self._column_value(each), unmapped
                        )
                        for each in transfer
                    },
                    unmapped,
                    tuple(refused),
                )
            finally:
                try:
                    self.execute(f"DROP TABLE IF EXISTS {self.staging_table(name)}")
                except WarehouseError:
                    pass  # the product drops it with its session or after its expiration

    def _transfer_column(self, column: StagedColumn, number: int, *, has_nul: bool) -> _TransferColumn:
        form, target = form_of(column.type), column.target.sql_type
        native = self.native_forms.get(target)
        fitting = native if native in (form, Form.TEXT) else None
        if target == self.decimal_type and form is Form.FLOAT:
            fitting = Form.DECIMAL
        if column.cast_type:
            fitting = None
        json_name = f"j{number}" if has_nul or fitting in (None, Form.DECIMAL) else ""
        return _TransferColumn(column, f"c{number}", fitting, json_name)

    def _column_value(self, each: _TransferColumn) -> ColumnValue:
        value, target = self.dialect.staged(each.name), each.column.target
        if each.form is None:
            if each.column.cast_type:
                cast = self.try_cast(value, each.column.cast_type)
                value = f"CAST({cast} AS {self.staging_types[Form.TEXT]})"
            value = self.try_cast(value, target.sql_type)
        elif each.form is Form.TIME:
            value = self.staged_time.format(value)
        elif target.kind is Kind.JSON:
            value = self.dialect.parse_json(value)
        if not each.json_name:
            return ColumnValue(value)
        json = self.dialect.staged(each.json_name)
        return ColumnValue(value, f"{json} IS NOT NULL AND {value} IS NULL", json)


# --- the file


def _write_file(
    path: Path,
    names: list[str],
    staged: StagedFiles,
    columns: Sequence[_TransferColumn],
    format: TransferFormat,
) -> list[RefusedRow]:
    """Write the rows to one file, or none if there are no rows; return those that the product cannot hold."""
    refused: dict[int, RefusedRow] = {}
    writer = None
    try:
        for batch in staged.batches(_BATCH_ROWS):
            rows = _transfer_rows(batch, columns, format, refused).select(names)
            if rows.num_rows and writer is None:
                writer = pq.ParquetWriter(path, rows.schema, compression="snappy")
            if writer is not None:
                writer.write_table(rows)
    finally:
        if writer is not None:
            writer.close()
    return list(refused.values())


def _transfer_rows(
    batch: pa.RecordBatch,
    columns: Sequence[_TransferColumn],
    format: TransferFormat,
    refused: dict[int, RefusedRow],
) -> pa.Table:
    """The rows of a batch, without those that are refused."""
    made: dict[str, Any] = {_ROW_NAME: batch.column(ROW)}
    for each in columns:
        value, form = batch.column(each.column.name), each.written_form
        made[each.name] = _as_form(value, form, format.time_type)
        if each.json_name:
            made[each.json_name] = _json(value)
        if form is Form.TEXT and not format.allows_nul and each.json_name:
            made[each.name] = pc.if_else(pc.match_substring(made[each.name], "\0"), None, made[each.name])
        if format.json_limits is not None and each.column.target.kind is Kind.JSON:
            made[each.name] = column_of_kept_values(made[each.name], format.json_limits)
    rows = pa.table(made)
    if format.max_text_bytes is None:
        return rows
    fits = pa.repeat(True, len(rows))
    for each in columns:
        if each.written_form is not Form.TEXT:
            continue
        for name in filter(None, (each.name, each.json_name)):
            short = pc.fill_null(pc.less_equal(pc.binary_length(made[name]), format.max_text_bytes), True)
            fits = pc.and_(fits, short)
            reason = f"the text of {each.column.name!r} has more than {format.max_text_bytes} bytes."
            for row in made[_ROW_NAME].filter(pc.invert(short)).to_pylist():
                refused.setdefault(row, RefusedRow(row, reason))
    return rows.filter(fits)


def _as_form(value: pa.Array, form: Form, time_type: pa.DataType) -> pa.Array:
    if form is Form.DECIMAL:
        return _decimal(value)
    if form is Form.TIME:
        return value.cast(pa.timestamp("us", "UTC")).cast(time_type)
    return _text(value) if form is Form.TEXT else value


def _text(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        # Arrow's %S has the fraction too, with the digits of the unit
        return pc.strftime(value.cast(pa.timestamp("us")), _TIME)
    return value.cast(pa.string())


def _decimal(value: pa.Array) -> pa.Array:
    """The decimal of the shortest text, 19.99 and not 19.989999999999998437; NULL where it loses a digit."""
    size = pc.abs(value)
    fits = pc.and_(pc.is_finite(value), pc.less(size, _LARGE))
    # a smaller number has more digits behind the point than its text has before the exponent
    fits = pc.and_(fits, pc.or_(pc.greater_equal(size, _SMALL), pc.equal(value, 0.0)))
    wide = pc.if_else(fits, value, None).cast(pa.string()).cast(pa.decimal256(76, 40))
    short = pc.round(wide, 18)
    return pc.if_else(pc.equal(short, wide), short, None).cast(_DECIMAL)


def _json(value: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(value.type) or pa.types.is_boolean(value.type)):
        plain = (value if pa.types.is_floating(value.type) else _text(value)).to_pylist()
        value = pa.array([_encoded(each) for each in plain], pa.string())
    return value.cast(pa.string())


def _encoded(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        value = str(value)  # JSON has no such numbers
    return msgspec.json.encode(value).decode()
