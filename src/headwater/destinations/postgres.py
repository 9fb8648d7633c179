"""Postgres, 12 and newer.

Rows go by COPY: straight into the table where that is all there is to do, else into a temporary table
from which they are cast and upserted. The key is a UNIQUE constraint and not PRIMARY KEY: that would
refuse an event without the key, and leave NOT NULL behind when it is changed.
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

from headwater.destinations import ledger
from headwater.destinations.base import Capabilities, Load, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import key_name, listed, literal, quoted
from headwater.destinations.sql.transactional import Fit, TransactionalDestination, field, first_line
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import ROW, Column, Patch, Table, check_sql_type
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError

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


_ZONED = "timestamp with time zone"


_STAGE = "_headwater_staged"


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


_NATURAL = {
    "text": pa.string(),
    "double precision": pa.float64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    _NUMERIC: pa.decimal128(38, 18),
}


# Postgres' own pg_input_is_valid came with 16
_FITS = """CREATE OR REPLACE FUNCTION pg_temp.headwater_fits(value text, type text) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT %L::%s', value, type); RETURN true;
EXCEPTION WHEN others THEN RETURN false; END $$"""


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `postgres`."""

    url: Annotated[
        str,
        msgspec.Meta(description="The database, such as `postgresql://user:${env.PGPASSWORD}@host:5432/db`."),
    ]
    schema: Annotated[str, msgspec.Meta(description="Schema of the tables; made if it is not there.")] = (
        "public"
    )
    connect_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="The server must answer a new connection within this time.")
    ] = 10


class PostgresDestination(TransactionalDestination):
    """Rows in a schema of a Postgres database."""

    Settings: ClassVar[type[msgspec.Struct]] = PostgresSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "text",
            Kind.FLOAT64: _NUMERIC,
            Kind.INT64: "bigint",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: _ZONED,
            Kind.JSON: "jsonb",
        },
        max_identifier_length=63,
        max_columns=1_600,
        folds_case=False,
        supports_transactions=True,
    )
    options: PostgresSettings
    own_check_from: ClassVar[int] = 160_000
    """Version of the server from which on it can tell whether a text is a value of a type."""

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._fits = "pg_input_is_valid"

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
                prepare_threshold=None,  # a pooler between us and the server may not keep prepared statements
                connect_timeout=self.options.connect_timeout_seconds,
                application_name="headwater",
            )
        except psycopg.Error as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to Postgres: {first_line(error)}.",
                hint="Check `url` and the server; it is tried again.",
            ) from error
        self._connection = connection
        schema = quoted(self.options.schema)
        self.execute("SET standard_conforming_strings = on; SET TIME ZONE 'UTC'; SET extra_float_digits = 1")
        with self.transaction():
            # two that start at once would both find nothing, and the second would fail
            self.execute("SELECT pg_advisory_xact_lock(hashtext('headwater ledger'))")
            if not self.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = {literal(self.options.schema)}"):
                self.execute(f"CREATE SCHEMA {schema}")
            self.execute(
                f"CREATE TABLE IF NOT EXISTS {schema}.{ledger.LEDGER} (load_id text PRIMARY KEY, "
                "table_name text, row_count bigint, unmapped_count bigint, refused_count bigint, "
                "refused_rows text, loaded_at timestamp with time zone DEFAULT now())"
            )
        self.execute(f"SET search_path = {schema}")
        if connection.info.server_version < self.own_check_from:
            self._fits = "pg_temp.headwater_fits"
            self.execute(_FITS)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def relation(self, name: str) -> str:
        return f"{quoted(self.options.schema)}.{quoted(name)}"

    def table(self, name: str) -> Table | None:
        here = f"to_regclass({literal(self.relation(name))})"
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
        name, key = self.relation(table), quoted(key_name(table))
        columns = [f"{quoted(column.name)} {self.column_type(column)}" for column in patch.add]
        changes = [] if patch.create else [f"ADD COLUMN {column}" for column in columns]
        if patch.drop_key:
            changes.insert(0, f"DROP CONSTRAINT {key}")
        if patch.set_key:
            changes.append(f"ADD CONSTRAINT {key} UNIQUE ({listed(patch.set_key)})")
        if patch.create:
            self.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        if changes:
            self.execute(f"ALTER TABLE {name} {', '.join(changes)}")

    def load(self, load: Load) -> Loaded:
        self._ready()
        if not self.loaded([load.id]):
            staged, table = Staged(load.files), self.table(load.table.name)
            if table is not None and self._copies(staged, load, table):
                try:
                    return self._copied(staged, load)
                except RowsRefused:
                    pass  # the long way tells which
        return super().load(load)

    def _copies(self, staged: Staged, load: Load, table: Table) -> bool:
        """Whether COPY alone does it: no key, and all values fit as they are."""
        if table.key and set(table.key) <= {*staged.columns}:
            return False
        for name in staged.columns:
            if name not in table.columns or load.table.columns.get(name, table.columns[name]).cast_type:
                return False
            type, target = staged.types[name], table.columns[name].sql_type
            if target == _NUMERIC and type == pa.float64():
                if not staged.within(name, _TOO_LARGE):
                    return False
            elif not (_NATURAL.get(target) == type or (target == _ZONED and pa.types.is_timestamp(type))):
                return False
        return True

    def _copied(self, staged: Staged, load: Load) -> Loaded:
        loaded = Loaded(id=load.id, rows=staged.rows)
        return self.once(
            load.table.name,
            loaded,
            lambda: self._copy(staged, self.relation(load.table.name), staged.columns),
        )

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            cursor = self._ready().execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._translated(error) from error

    @contextmanager
    def stage(self, staged: Staged) -> Iterator[str]:
        columns = ", ".join(f"{quoted(name)} {_staged_type(type)}" for name, type in staged.types.items())
        self.execute(f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
        self.execute(f"CREATE TEMPORARY TABLE {_STAGE} ({columns})")
        try:
            self._copy(staged, f"pg_temp.{_STAGE}", list(staged.types))
            yield f"pg_temp.{_STAGE}"
        finally:
            try:
                self.execute(f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
            except WarehouseError:
                pass  # it goes with its session

    def _copy(self, staged: Staged, relation: str, names: list[str]) -> None:
        statement = f"COPY {relation} ({listed(names)}) FROM STDIN (FORMAT csv)"
        try:
            with self._ready().cursor().copy(statement.encode()) as copy:
                for chunk in csv_chunks(staged.batches(), names):
                    copy.write(chunk)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def fit(self, value: str, staged: pa.DataType, cast: str, column: Column) -> Fit:
        target = column.sql_type
        if not cast:
            if target == "jsonb" and staged == pa.string():
                valid = f"{self._fits}({value}, 'jsonb')"
                return Fit(f"CASE WHEN {valid} THEN {value}::jsonb ELSE to_jsonb({value}) END")
            if target == _NUMERIC and staged == pa.float64():
                # by way of text: a direct cast keeps 15 digits only
                small = f"abs({value}) < {_TOO_LARGE:g}"
                fitted = f"CASE WHEN {small} THEN {value}::text::{target} END"
                return Fit(fitted, f"{value} IS NOT NULL AND NOT {small}")
            if target == "text":
                return Fit(f"{value}::text")
            if _NATURAL.get(target) == staged or (target == _ZONED and pa.types.is_timestamp(staged)):
                return Fit(value)
        fitted = self._cast(f"{value}::text", target)
        if cast:
            first = self._cast(f"{value}::text", check_sql_type(cast))
            fitted = self._cast(f"({first})::text", target)
        return Fit(fitted, f"{value} IS NOT NULL AND ({fitted}) IS NULL")

    def _cast(self, text: str, type: str) -> str:
        return f"CASE WHEN {self._fits}({text}, {literal(type)}) THEN ({text})::{type} END"

    def gathered(self, unmapped: str, misfits: dict[str, str]) -> str:
        parts = " || ".join(
            f"CASE WHEN {condition} THEN jsonb_build_object({literal(name)}, {field(name)}) ELSE '{{}}' END"
            for name, condition in misfits.items()
        )
        either = " OR ".join(f"({condition})" for condition in misfits.values())
        return f"CASE WHEN {either} THEN coalesce({unmapped}, '{{}}'::jsonb) || {parts} ELSE {unmapped} END"

    def last(self, column: str) -> str:
        return (
            f"(array_agg({column} ORDER BY base.{quoted(ROW)} DESC) FILTER (WHERE {column} IS NOT NULL))[1]"
        )

    def _ready(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            raise DestinationUnavailable(
                f"destination {self.id} is not connected.", hint="It is tried again."
            )
        return self._connection

    def _translated(self, error: psycopg.Error) -> WarehouseError:
        text, state = f"{first_line(error)}.", error.sqlstate or ""
        if state[:2] in ("22", "23", "44", "54", "P0"):
            return RowsRefused(text)
        if state[:2] == "42" and state != "42501":
            return LoadRefused(text, hint="The table may have changed meanwhile: run again.")
        return DestinationUnavailable(f"destination {self.id}: {text}", hint="It is tried again.")


def _kind_of(type: str) -> Kind:
    if type.startswith("numeric"):
        return Kind.FLOAT64
    return Kind.TIMESTAMP if type.startswith("timestamp") else _KINDS.get(type, Kind.STRING)


def _staged_type(type: pa.DataType) -> str:
    if pa.types.is_timestamp(type):
        return _ZONED
    if pa.types.is_decimal(type):
        return "numeric"
    return {pa.bool_(): "boolean", pa.int64(): "bigint", pa.float64(): "double precision"}.get(type, "text")
