"""Postgres, 12 and newer.

COPY writes rows straight into the table where no value has to be cast and no row to be upserted; otherwise
into a temporary table. The key is a UNIQUE constraint and not a PRIMARY KEY, which would refuse events
without the key and leave NOT NULL behind when it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headwater.destinations.base import Capabilities, Load, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.json_entries import JSONB, as_text, column_of_kept_values
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import Dialect, key_name
from headwater.destinations.sql.postgres_protocol import PostgresProtocolDestination, PostgresProtocolSettings
from headwater.destinations.sql.sql_destination import StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.staged_files import Form, StagedFiles, form_of, has_nul
from headwater.destinations.table import Column, Patch, Table
from headwater.errors import WarehouseError

_NUMERIC, _SCALE, _TOO_LARGE, _ALL_DIGITS_FIT = "numeric(38,18)", 18, 1e20, 1e-2
_WITH_TIME_ZONE = "timestamp with time zone"
_PAGES = 2_000
_STAGING_TABLE = "_headwater_staged"
_STAGING_TYPES = {
    Form.TEXT: "text",
    Form.INTEGER: "bigint",
    Form.FLOAT: "double precision",
    Form.BOOLEAN: "boolean",
    Form.TIME: _WITH_TIME_ZONE,
}

# Servers before 16 have no pg_input_is_valid.
_FITS = """CREATE OR REPLACE FUNCTION pg_temp.headwater_fits(value text, type text) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT %L::%s', value, type); RETURN true;
EXCEPTION WHEN others THEN RETURN false; END $$"""


class _ChangedByCopy(Exception):
    """COPY would change a value; nothing is stored."""


def csv_chunks(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[bytes]:
    """A chunk of lines per batch, without a header. Texts are quoted, an empty field without quotes is NULL.

    Times are UTC and have no zone.
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
    if pa.types.is_string(column.type) and has_nul(column):
        raise _ChangedByCopy
    return column


def _with_all_digits(batches: Iterable[pa.RecordBatch], decimals: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches, as long as each double has no more digits than the decimals that it becomes."""
    for batch in batches:
        for name in decimals:
            column = batch.column(name)
            # a double has at most 17 digits
            small = column.filter(pc.less(pc.abs(column), _ALL_DIGITS_FIT))
            if not all(_scale(number) <= _SCALE for number in small.to_pylist()):
                raise _ChangedByCopy
        yield batch


def _scale(number: float) -> int:
    """The number of digits behind the point."""
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else _SCALE + 1


def _with_json(
    batches: Iterable[pa.RecordBatch], objects: Sequence[str], beside: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The batches, with what jsonb keeps, and texts with a NUL in a column of JSON `beside` their own."""
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names}
        for name in objects:
            columns[name] = column_of_kept_values(columns[name], JSONB)
        for name, other in beside.items():
            texts = columns[name].to_pylist()
            unfit = [None if text is None or "\0" not in text else _json_of_json(text) for text in texts]
            columns[other] = pa.array(unfit, pa.string())
            columns[name] = pc.if_else(columns[other].is_valid(), None, columns[name])
        yield pa.record_batch(columns)


def _json_of_json(text: str) -> str:
    return as_text(msgspec.json.encode(text).decode())


class PostgresSettings(PostgresProtocolSettings, frozen=True, kw_only=True):
    """Options of the type `postgres`."""

    lock_timeout_seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0, description="A table that another session locks for longer is loaded later; 0: no limit."
        ),
    ] = 10.0


class PostgresDialect(Dialect):
    """Postgres' aggregates and JSON."""

    def last_value(self, column: str, row: str) -> str:
        return f"(array_agg({column} ORDER BY {row} DESC) FILTER (WHERE {column} IS NOT NULL))[1]"

    def parse_json(self, text: str) -> str:
        return f"CAST({text} AS jsonb)"

    def has_key(self, text: str, name: str) -> str:
        return f"jsonb_exists(CAST({text} AS jsonb), {self.literal(name)})"


class PostgresDestination(PostgresProtocolDestination):
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
        any_letters=True,
        reserved_columns=frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"}),
    )
    kinds: ClassVar[dict[str, Kind]] = {"jsonb": Kind.JSON}
    native_forms: ClassVar[dict[str, Form]] = {
        "text": Form.TEXT,
        "double precision": Form.FLOAT,
        "bigint": Form.INTEGER,
        "boolean": Form.BOOLEAN,
        _WITH_TIME_ZONE: Form.TIME,
    }
    product, default_port, default_database = "Postgres", 5432, "postgres"
    row_error_classes = ("22", "23", "44", "54", "P0")
    options: PostgresSettings
    dialect = PostgresDialect()
    has_input_check_from: ClassVar[int] = 160_000
    """First version of the server that has pg_input_is_valid."""

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._is_valid = "pg_input_is_valid"

    def prepare_session(self) -> None:
        self.execute("SET standard_conforming_strings = on; SET TIME ZONE 'UTC'; SET extra_float_digits = 1")
        self.execute(f"SET lock_timeout TO {round(self.options.lock_timeout_seconds * 1000)}")
        self.choose_schema()
        with self.transaction():
            # two processes that start at once would both create it, and the second would fail
            self.execute("SELECT pg_advisory_xact_lock(hashtext('headwater ledger'))")
            self.create_schema()
            self.create_ledger("PRIMARY KEY (load_id)")
        self.execute(f"SET search_path = {self.dialect.quoted(self.schema)}")
        if self.ready().info.server_version < self.has_input_check_from:
            self._is_valid = "pg_temp.headwater_fits"
            self.execute(_FITS)

    def table(self, name: str) -> Table | None:
        here = f"to_regclass({self.dialect.literal(self.relation(name))})"
        found = self.execute(
            f"SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = {here} "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        if not found:
            return None
        if self.execute(f"SELECT 1 FROM pg_class WHERE oid = {here} AND relkind IN ('v', 'm')"):
            raise self.view_error(name)
        keys = self.execute(
            "SELECT c.relname, i.indisprimary, array_agg(a.attname::text ORDER BY k.place) "
            "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            f"WHERE i.indrelid = {here} AND i.indisunique GROUP BY 1, 2"
        )
        return Table(
            name,
            {column: Column(column, self.kind_of(type), type) for column, type in found},
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

    row_id, row_id_type = "ctid", "tid"

    def widen_statements(self, table: Table, column: str, kind: Kind) -> list[str]:
        quoted, own = self.dialect.quoted(column), table.columns[column].kind
        value = quoted
        if kind is Kind.STRING and own is Kind.FLOAT64:  # 1.5 and not 1.500000000000000000
            value = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {quoted}::text))"
        elif own is Kind.TIMESTAMP:
            value = f"""to_char({quoted} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
        elif own is Kind.BOOL and kind is not Kind.STRING:
            value = f"{quoted}::integer"
        type = self.sql_type(kind)
        change = f"ALTER COLUMN {quoted} TYPE {type} USING ({value})::{type}"
        return [f"ALTER TABLE {self.relation(table.name)} {change}"]

    def chunks(self, table: str) -> list[str]:
        name = self.dialect.literal(self.relation(table))
        [[pages]] = self.execute(
            f"SELECT pg_relation_size(to_regclass({name})) / current_setting('block_size')::bigint"
        )
        return [
            f"ctid >= '({at},0)'::tid AND ctid < '({at + _PAGES},0)'::tid"
            for at in range(0, int(pages), _PAGES)
        ]

    def lock_table(self, table: str) -> None:
        self.execute(f"LOCK TABLE {self.relation(table)} IN SHARE ROW EXCLUSIVE MODE")

    def load(self, load: Load) -> Loaded:
        if not self.loaded([load.id]):
            staged, table = StagedFiles(load.files), self.table(load.table.name)
            if table is not None and self._needs_copy_only(staged, load, table):
                self.check_ours(table.name)
                try:
                    return self._copy_into_target(staged, load, table)
                except (RowsRefused, _ChangedByCopy):
                    pass  # a load by way of the staging table finds the rows and values
        return super().load(load)

    def _needs_copy_only(self, staged: StagedFiles, load: Load, table: Table) -> bool:
        """Whether the rows have no key and every value fits without a cast."""
        if table.key and set(table.key) <= {*staged.columns}:
            return False
        return all(
            staged.within(column.name, _TOO_LARGE) if _is_decimal(column) else self.takes_as_staged(column)
            for column in self.match_columns(staged, load, table)
        )

    def _copy_into_target(self, staged: StagedFiles, load: Load, table: Table) -> Loaded:
        loaded, target = Loaded(id=load.id, rows=staged.rows), self.relation(load.table.name)
        decimals = [column.name for column in self.match_columns(staged, load, table) if _is_decimal(column)]
        batches = _with_all_digits(staged.batches(), decimals)
        is_first = self.commit_once(
            load.table.name, loaded, lambda: self._copy(batches, target, staged.columns)
        )
        return loaded if is_first else self.entered(load.id)

    @contextmanager
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> Iterator[StagingRelation]:
        name = f"pg_temp.{_STAGING_TABLE}"
        texts = [column.name for column in columns if form_of(column.type) is Form.TEXT]
        objects = [column.name for column in columns if column.target.kind is Kind.JSON]
        nuls = staged.texts_with_nul() if texts else set()
        beside = {text: f"_headwater_json_{number}" for number, text in enumerate(texts) if text in nuls}
        types = staged.types | dict.fromkeys(beside.values(), pa.string())
        definitions = ", ".join(
            f"{self.dialect.quoted(column)} {_STAGING_TYPES[form_of(type)]}" for column, type in types.items()
        )
        self.execute(f"DROP TABLE IF EXISTS {name}")
        self.execute(f"CREATE TEMPORARY TABLE {_STAGING_TABLE} ({definitions})")
        batches = staged.batches()
        if objects or beside:
            batches = _with_json(batches, objects, beside)

        def value(column: StagedColumn) -> ColumnValue:
            found = self._column_value(column)
            if column.name not in beside:
                return found
            json = self.dialect.staged(beside[column.name])
            original = found.original_json or "NULL"
            not_fitting = f"({json} IS NOT NULL OR ({found.not_fitting or 'FALSE'}))"
            return ColumnValue(found.value, not_fitting, f"coalesce({json}, {original})")

        try:
            self._copy(batches, name, list(types))
            yield self.with_staged_names(name, columns, value)
        finally:
            try:
                self.execute(f"DROP TABLE IF EXISTS {name}")
            except WarehouseError:
                pass  # Postgres drops it with the session

    def _copy(self, batches: Iterable[pa.RecordBatch], relation: str, names: list[str]) -> None:
        statement = f"COPY {relation} ({self.dialect.listed(names)}) FROM STDIN (FORMAT csv)"
        try:
            with self.ready().cursor().copy(statement.encode()) as copy:
                for chunk in csv_chunks(batches, names):
                    copy.write(chunk)
        except psycopg.Error as error:
            raise self.translated(error) from error

    def _column_value(self, column: StagedColumn) -> ColumnValue:
        value, target = self.dialect.staged(column.name), column.target.sql_type
        original = f"CAST(to_jsonb({value}) AS text)"
        if self.takes_as_staged(column):
            return ColumnValue(value)
        if not column.cast_type:
            if target == "jsonb" and form_of(column.type) is Form.TEXT:
                valid = f"{self._is_valid}({value}, 'jsonb')"
                return ColumnValue(f"CASE WHEN {valid} THEN {value}::jsonb ELSE to_jsonb({value}) END")
            if _is_decimal(column):
                # by way of text: a direct cast keeps 15 digits only
                number = f"{value}::text::numeric"
                exact = f"abs({value}) < {_TOO_LARGE:g} AND round({number}, {_SCALE}) = {number}"
                fitted = f"CASE WHEN {exact} THEN {value}::text::{target} END"
                return ColumnValue(fitted, f"{value} IS NOT NULL AND NOT ({exact})", original)
            if target == "text":
                return ColumnValue(f"{value}::text")
        text = f"{value}::text"
        if column.cast_type:
            text = f"({self._try_cast(text, column.cast_type)})::text"
        fitted = self._try_cast(text, target)
        if (back := self._exact_sql(column, fitted)) and not column.cast_type:
            fitted = f"CASE WHEN {back} THEN {fitted} END"
        return ColumnValue(fitted, f"{value} IS NOT NULL AND ({fitted}) IS NULL", original)

    def _exact_sql(self, column: StagedColumn, fitted: str) -> str:
        """SQL condition that a number or time is the same in its column; empty where a cast loses nothing."""
        value, form = self.dialect.staged(column.name), form_of(column.type)
        if form is Form.FLOAT and column.target.sql_type.startswith(("numeric", "real")):
            return f"({fitted})::text::numeric = {value}::text::numeric"
        if form is Form.TIME and column.target.sql_type.startswith(("date", "timestamp")):
            return f"({fitted})::{_WITH_TIME_ZONE} = {value}"
        return ""

    def _try_cast(self, text: str, type: str) -> str:
        return f"CASE WHEN {self._is_valid}({text}, {self.dialect.literal(type)}) THEN ({text})::{type} END"


def _is_decimal(column: StagedColumn) -> bool:
    """Whether the column stores doubles as decimals, which are not as large."""
    return not column.cast_type and column.target.sql_type == _NUMERIC and form_of(column.type) is Form.FLOAT
