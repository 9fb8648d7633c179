"""Postgres, 12 and newer.

COPY writes rows straight into the table where no value has to be cast and no row to be upserted; otherwise
into a temporary table. The key is a UNIQUE constraint and not a PRIMARY KEY, which would refuse events
without the key and leave NOT NULL behind when it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headwater.destinations.base import Capabilities, Load, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import Dialect, key_name
from headwater.destinations.sql.errors import error_of_sqlstate, first_line
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import UNMAPPED, Column, Patch, Table
from headwater.errors import DestinationUnavailable, WarehouseError

__all__ = ["PostgresDestination", "PostgresSettings", "csv_chunks"]


def csv_chunks(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[bytes]:
    """A chunk of lines per batch, without a header. Texts are quoted, an empty field without quotes is NULL.

    A NUL, which no text of Postgres can hold, becomes U+FFFD; times are UTC and do not say so.
    """
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    for batch in batches:
        columns = [_writable(batch.column(name)) for name in names]
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.record_batch(columns, names=list(names)), sink, options)
        yield sink.getvalue().to_pybytes()


def _writable(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return column.cast(pa.timestamp(column.type.unit))  # with a zone it takes ten times as long
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = column.buffers()[2]
        if text is not None and b"\0" in text.to_pybytes():
            return pc.replace_substring(column, "\0", "\ufffd")
    return column


_NUMERIC, _TOO_LARGE = "numeric(38,18)", 1e20
_WITH_TIME_ZONE = "timestamp with time zone"
_STAGING_TABLE = "_headwater_staged"
_KINDS = {
    "boolean": Kind.BOOL,
    "smallint": Kind.INT64,
    "integer": Kind.INT64,
    "bigint": Kind.INT64,
    "real": Kind.FLOAT64,
    "double precision": Kind.FLOAT64,
    "json": Kind.JSON,
    "jsonb": Kind.JSON,
}
_NATIVE = {
    "text": pa.string(),
    "double precision": pa.float64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    _NUMERIC: pa.decimal128(38, 18),
}

# Servers before 16 have no pg_input_is_valid.
_FITS = """CREATE OR REPLACE FUNCTION pg_temp.headwater_fits(value text, type text) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT %L::%s', value, type); RETURN true;
EXCEPTION WHEN others THEN RETURN false; END $$"""


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `postgres`."""

    url: Annotated[
        str,
        msgspec.Meta(description="The database, such as `postgresql://user:${env.PGPASSWORD}@host:5432/db`."),
    ]
    schema: Annotated[
        str, msgspec.Meta(description="Schema of the tables; created if it does not exist.")
    ] = "public"
    connect_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="Time limit for a new connection.")
    ] = 10


class PostgresDialect(Dialect):
    """Postgres' aggregates and JSON."""

    def last_value(self, column: str, row: str) -> str:
        return f"(array_agg({column} ORDER BY {row} DESC) FILTER (WHERE {column} IS NOT NULL))[1]"

    def parse_json(self, text: str) -> str:
        return f"CAST({text} AS jsonb)"


class PostgresDestination(SqlDestination):
    """Rows in a schema of a Postgres database."""

    Settings: ClassVar[type[msgspec.Struct]] = PostgresSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "text",
            Kind.FLOAT64: _NUMERIC,
            Kind.INT64: "bigint",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: _WITH_TIME_ZONE,
            Kind.JSON: "jsonb",
        },
        max_identifier_length=63,
        max_columns=1_600,
        folds_case=False,
        supports_transactions=True,
    )
    options: PostgresSettings
    dialect = PostgresDialect()
    has_input_check_from: ClassVar[int] = 160_000
    """First version of the server that has pg_input_is_valid."""

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_valid = "pg_input_is_valid"

    def dataset(self, table: str) -> tuple[str, str]:
        url = urlsplit(self.options.url)
        database = url.path.strip("/") or "postgres"
        host = f"{url.hostname or 'localhost'}:{url.port or 5432}"
        return f"postgres://{host}", f"{database}.{self.options.schema}.{table}"

    def connect(self) -> None:
        if self._connection is not None:
            return
        try:
            connection = psycopg.connect(
                self.options.url,
                autocommit=True,
                prepare_threshold=None,  # a connection pooler may not keep prepared statements
                connect_timeout=self.options.connect_timeout_seconds,
                application_name="headwater",
            )
        except psycopg.Error as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to Postgres: {first_line(error)}.",
                hint="Check `url` and the server; the load is retried.",
            ) from error
        self._connection = connection
        schema = self.dialect.quoted(self.options.schema)
        self.execute("SET standard_conforming_strings = on; SET TIME ZONE 'UTC'; SET extra_float_digits = 1")
        with self.transaction():
            # two processes that start at once would both create it, and the second would fail
            self.execute("SELECT pg_advisory_xact_lock(hashtext('headwater ledger'))")
            name = self.dialect.literal(self.options.schema)
            if not self.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = {name}"):
                self.execute(f"CREATE SCHEMA {schema}")
            self.create_ledger("PRIMARY KEY (load_id)")
        self.execute(f"SET search_path = {schema}")
        if connection.info.server_version < self.has_input_check_from:
            self._is_valid = "pg_temp.headwater_fits"
            self.execute(_FITS)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def relation(self, name: str) -> str:
        return f"{self.dialect.quoted(self.options.schema)}.{self.dialect.quoted(name)}"

    def table(self, name: str) -> Table | None:
        here = f"to_regclass({self.dialect.literal(self.relation(name))})"
        found = self.execute(
            f"SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = {here} "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        if not found:
            return None
        keys = self.execute(
            "SELECT c.relname, i.indisprimary, array_agg(a.attname::text ORDER BY k.place) "
            "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            f"WHERE i.indrelid = {here} AND i.indisunique GROUP BY 1, 2"
        )
        return Table(
            name,
            {column: Column(column, _kind_of(type), type) for column, type in found},
            next((tuple(columns) for index, _, columns in keys if index == key_name(name)), ()),
            next((tuple(columns) for _, primary, columns in keys if primary), ()),
        )

    def alter(self, table: str, patch: Patch) -> None:
        name, key = self.relation(table), self.dialect.quoted(key_name(table))
        columns = self.column_definitions(patch.add)
        changes = [] if patch.create else [f"ADD COLUMN {column}" for column in columns]
        if patch.drop_key:
            changes.insert(0, f"DROP CONSTRAINT {key}")
        if patch.set_key:
            changes.append(f"ADD CONSTRAINT {key} UNIQUE ({self.dialect.listed(patch.set_key)})")
        with self.transaction():
            if patch.create:
                self.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            if changes:
                self.execute(f"ALTER TABLE {name} {', '.join(changes)}")

    def load(self, load: Load) -> Loaded:
        self._ready()
        if not self.loaded([load.id]):
            staged, table = StagedFiles(load.files), self.table(load.table.name)
            if table is not None and _needs_copy_only(staged, load, table):
                try:
                    return self._copy_into_target(staged, load)
                except RowsRefused:
                    pass  # a load by way of the staging table finds the rows
        return super().load(load)

    def _copy_into_target(self, staged: StagedFiles, load: Load) -> Loaded:
        loaded, target = Loaded(id=load.id, rows=staged.rows), self.relation(load.table.name)
        is_first = self.commit_once(
            load.table.name, loaded, lambda: self._copy(staged, target, staged.columns)
        )
        return loaded if is_first else self.entered(load.id)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            cursor = self._ready().execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._translated(error) from error

    @contextmanager
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> Iterator[StagingRelation]:
        name = f"pg_temp.{_STAGING_TABLE}"
        definitions = ", ".join(
            f"{self.dialect.quoted(column)} {_staging_type(type)}" for column, type in staged.types.items()
        )
        self.execute(f"DROP TABLE IF EXISTS {name}")
        self.execute(f"CREATE TEMPORARY TABLE {_STAGING_TABLE} ({definitions})")
        try:
            self._copy(staged, name, list(staged.types))
            texts = {column.target.name: self._staged(column.name) for column in columns}
            values = {column.target.name: self._column_value(column) for column in columns}
            yield StagingRelation(name, f"staged.{self.dialect.row}", values, texts.get(UNMAPPED, "NULL"))
        finally:
            try:
                self.execute(f"DROP TABLE IF EXISTS {name}")
            except WarehouseError:
                pass  # Postgres drops it with the session

    def _copy(self, staged: StagedFiles, relation: str, names: list[str]) -> None:
        statement = f"COPY {relation} ({self.dialect.listed(names)}) FROM STDIN (FORMAT csv)"
        try:
            with self._ready().cursor().copy(statement.encode()) as copy:
                for chunk in csv_chunks(staged.batches(), names):
                    copy.write(chunk)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _staged(self, name: str) -> str:
        return f"staged.{self.dialect.quoted(name)}"

    def _column_value(self, column: StagedColumn) -> ColumnValue:
        value, target = self._staged(column.name), column.target.sql_type
        original = f"CAST(to_jsonb({value}) AS text)"
        if not column.cast_type:
            if target == "jsonb" and column.type == pa.string():
                valid = f"{self._is_valid}({value}, 'jsonb')"
                return ColumnValue(f"CASE WHEN {valid} THEN {value}::jsonb ELSE to_jsonb({value}) END")
            if target == _NUMERIC and column.type == pa.float64():
                # by way of text: a direct cast keeps 15 digits only
                small = f"abs({value}) < {_TOO_LARGE:g}"
                fitted = f"CASE WHEN {small} THEN {value}::text::{target} END"
                return ColumnValue(fitted, f"{value} IS NOT NULL AND NOT {small}", original)
            if target == "text":
                return ColumnValue(f"{value}::text")
            if _is_native(target, column.type):
                return ColumnValue(value)
        text = f"{value}::text"
        if column.cast_type:
            text = f"({self._try_cast(text, column.cast_type)})::text"
        fitted = self._try_cast(text, target)
        return ColumnValue(fitted, f"{value} IS NOT NULL AND ({fitted}) IS NULL", original)

    def _try_cast(self, text: str, type: str) -> str:
        return f"CASE WHEN {self._is_valid}({text}, {self.dialect.literal(type)}) THEN ({text})::{type} END"

    def _ready(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            raise DestinationUnavailable(
                f"destination {self.id} is not connected.", hint="The load is retried."
            )
        return self._connection

    def _translated(self, error: psycopg.Error) -> WarehouseError:
        rows = ("22", "23", "44", "54", "P0")
        return error_of_sqlstate(self.id, error, error.sqlstate or "", rows=rows)


def _needs_copy_only(staged: StagedFiles, load: Load, table: Table) -> bool:
    """Whether the rows have no key and every value fits without a cast."""
    if table.key and set(table.key) <= {*staged.columns}:
        return False
    for name in staged.columns:
        if name not in table.columns or load.table.columns.get(name, table.columns[name]).cast_type:
            return False
        type, target = staged.types[name], table.columns[name].sql_type
        if target == _NUMERIC and type == pa.float64():
            if not staged.within(name, _TOO_LARGE):
                return False
        elif not _is_native(target, type):
            return False
    return True


def _is_native(sql_type: str, staged: pa.DataType) -> bool:
    """Whether a column of the type takes every staged value as it is."""
    if sql_type == _WITH_TIME_ZONE:
        return bool(pa.types.is_timestamp(staged))
    return bool(_NATIVE.get(sql_type) == staged)


def _kind_of(type: str) -> Kind:
    if type.startswith("numeric"):
        return Kind.FLOAT64
    return Kind.TIMESTAMP if type.startswith("timestamp") else _KINDS.get(type, Kind.STRING)


def _staging_type(type: pa.DataType) -> str:
    if pa.types.is_timestamp(type):
        return _WITH_TIME_ZONE
    if pa.types.is_decimal(type):
        return "numeric"
    return {pa.bool_(): "boolean", pa.int64(): "bigint", pa.float64(): "double precision"}.get(type, "text")
