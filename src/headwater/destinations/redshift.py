"""Amazon Redshift (beta): files staged in S3, COPY, and one transaction.

COPY fills a temporary table. Then one transaction locks the ledger, checks that the load is not entered,
enters it, and casts and stores the rows. Redshift enforces no unique constraint, so concurrent attempts of
the same load wait for each other at the lock (G5). A killed session leaves nothing in the database. Files in
S3 are removed after the load; those of a killed load are left to the bucket's lifecycle rule.

An upsert is UPDATE and INSERT in that transaction. Redshift's MERGE takes neither a query as its source nor
an alias for its target, and deleting and inserting rows would lose the columns that a batch does not have.

Names are written in lower case, as Redshift stores them unless a session sets otherwise. A text has 65,535
bytes at most: a row with a longer one is refused, and kept whole in the rejects.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec
import psycopg
import pyarrow as pa

from headwater.destinations.base import Capabilities, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql import statements
from headwater.destinations.sql.dialect import ASCII_LOWER, Dialect
from headwater.destinations.sql.errors import first_line
from headwater.destinations.sql.file_load import FileLoadDestination, TransferFormat
from headwater.destinations.sql.postgres_protocol import PostgresProtocolDestination, PostgresProtocolSettings
from headwater.destinations.sql.statements import Rows
from headwater.destinations.staged_files import Form
from headwater.errors import DestinationUnavailable, WarehouseError

_TEXT, _NUMERIC, _WITH_TIME_ZONE = "character varying(65535)", "numeric(38,18)", "timestamp with time zone"
_FRESH = "_headwater_fresh"
_INTERNAL, _NULL_NOT_ALLOWED = "XX000", "cannot insert a null value into column"


class RedshiftSettings(PostgresProtocolSettings, frozen=True, kw_only=True):
    """Options of the type `redshift`."""

    url: Annotated[
        str,
        msgspec.Meta(description="The cluster, such as `postgresql://user:${env.PGPASSWORD}@host:5439/db`."),
    ]
    staging_url: Annotated[
        str,
        msgspec.Meta(
            description="Folder of the files for COPY, such as `s3://bucket/headwater?region=eu-west-1`; "
            "credentials come from the environment, as usual with AWS."
        ),
    ]
    iam_role: Annotated[
        str, msgspec.Meta(description="Role with which Redshift reads them: an ARN, or `default`.")
    ] = "default"


class RedshiftDialect(Dialect):
    """Names in lower case; literals that do not depend on whether a backslash escapes."""

    def fold(self, name: str) -> str:
        return name.translate(ASCII_LOWER)

    def quoted(self, name: str) -> str:
        return super().quoted(self.fold(name))

    def literal(self, text: str) -> str:
        parts = [super(RedshiftDialect, self).literal(part) for part in text.split("\\")]
        return parts[0] if len(parts) == 1 else f"({' || chr(92) || '.join(parts)})"


class RedshiftDestination(PostgresProtocolDestination, FileLoadDestination):
    """Rows in a schema of a Redshift database."""

    Settings: ClassVar[type[msgspec.Struct]] = RedshiftSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: _TEXT,
            Kind.FLOAT64: _NUMERIC,
            Kind.INT64: "bigint",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: _WITH_TIME_ZONE,
            Kind.JSON: _TEXT,
        },
        max_identifier_length=127,
        max_columns=1_600,
        folds_case=True,
        supports_transactions=True,
        any_letters=True,
        reserved_columns=frozenset(
            {"cmax", "cmin", "ctid", "deletexid", "insertxid", "oid", "tableoid", "xmax", "xmin"}
        ),
    )
    product, default_port = "Redshift", 5439
    kinds: ClassVar[dict[str, Kind]] = {"super": Kind.JSON}
    options: RedshiftSettings
    dialect = RedshiftDialect()
    staging_types: ClassVar[dict[Form, str]] = {
        Form.TEXT: _TEXT,
        Form.INTEGER: "bigint",
        Form.FLOAT: "double precision",
        Form.BOOLEAN: "boolean",
        Form.TIME: "timestamp",
        Form.DECIMAL: _NUMERIC,
    }
    native_forms: ClassVar[dict[str, Form]] = {
        _TEXT: Form.TEXT,
        "bigint": Form.INTEGER,
        "double precision": Form.FLOAT,
        "boolean": Form.BOOLEAN,
        _WITH_TIME_ZONE: Form.TIME,
    }
    decimal_type = _NUMERIC
    staged_time = "({} AT TIME ZONE 'UTC')"
    # COPY reads no Parquet time with a zone into a column with one
    transfer_format = TransferFormat(pa.timestamp("us"), max_text_bytes=65_535, allows_nul=False)

    def prepare_session(self) -> None:
        self.execute("SET TIME ZONE 'UTC'")
        self.choose_schema()
        self.create_schema()
        self.create_own_tables()

    def staging_table(self, name: str) -> str:
        return self.dialect.quoted(name)  # a temporary table is in a schema of the session

    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        schema = self.dialect.literal(self.dialect.fold(self.schema))
        table = self.dialect.literal(name)
        columns = self.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a "
            "JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {schema} AND c.relname = {table} AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY a.attnum"
        )
        if not columns:
            return None
        if self.execute(
            "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {schema} AND c.relname = {table} AND c.relkind IN ('v', 'm')"
        ):
            raise self.view_error(name)
        key = self.execute(
            "SELECT k.column_name FROM information_schema.table_constraints AS t "
            "JOIN information_schema.key_column_usage AS k ON k.constraint_name = t.constraint_name "
            "AND k.table_schema = t.table_schema AND k.table_name = t.table_name "
            f"WHERE t.constraint_type = 'PRIMARY KEY' AND t.table_schema = {schema} "
            f"AND t.table_name = {table} ORDER BY k.ordinal_position"
        )
        return [(str(column), str(type)) for column, type in columns], tuple(str(row[0]) for row in key)

    def add_columns(self, table: str, definitions: Sequence[str]) -> None:
        with self.transaction():
            for definition in definitions:  # Redshift adds one at a time
                self.execute(f"ALTER TABLE {self.relation(table)} ADD COLUMN {definition}")

    def create_staging_table(self, name: str, definitions: str) -> None:
        self.execute(f"CREATE TEMPORARY TABLE {self.staging_table(name)} ({definitions})")

    def load_file(self, name: str, file: Path) -> None:
        role = self.options.iam_role
        allowed = "default" if role == "default" else self.dialect.literal(role)
        with self._uploaded(name, file) as url:
            # all objects under the URL; in the table's order of columns
            self.execute(
                f"COPY {self.staging_table(name)} FROM {self.dialect.literal(url)} "
                f"IAM_ROLE {allowed} FORMAT AS PARQUET"
            )

    def try_cast(self, value: str, type: str) -> str:
        # a cast to a shorter text would cut it without an error
        if type.startswith(("character", "varchar", "char", "bpchar")) and "(" in type:
            length = type[type.index("(") + 1 : type.index(")")]
            return f"CASE WHEN octet_length({value}) <= {int(length)} THEN {value} END"
        return f"TRY_CAST({value} AS {type})"

    def upsert(self, target: str, rows: Rows, fresh: str) -> list[str]:
        return [
            f"DROP TABLE IF EXISTS {_FRESH}",
            f"CREATE TEMPORARY TABLE {_FRESH} AS {fresh}",
            *statements.update_and_insert(target, rows, _FRESH, self.dialect),
            f"DROP TABLE {_FRESH}",
        ]

    def claim_load(self, table: str, loaded: Loaded) -> bool:
        self.execute(f"LOCK TABLE {self.ledger.relation}")
        if self.loaded([loaded.id]):
            return False
        self.execute(self.ledger.insert(table, loaded, loaded_at=self.now))
        return True

    @contextmanager
    def _uploaded(self, name: str, file: Path) -> Iterator[str]:
        """The file as an object, for as long as it takes to copy it; the URL of its folder for Redshift."""
        from pyarrow import fs

        folder = f"{name}-{uuid.uuid4().hex[:8]}"
        try:
            store, root = fs.FileSystem.from_uri(self.options.staging_url)
            place = f"{root.rstrip('/')}/{folder}"
            with file.open("rb") as source, store.open_output_stream(f"{place}/{file.name}") as target:
                shutil.copyfileobj(source, target, 4 * 1024 * 1024)
        except (OSError, pa.ArrowException) as error:
            bucket = urlsplit(self.options.staging_url).hostname
            raise DestinationUnavailable(
                f"destination {self.id}: no upload to the bucket {bucket}: {first_line(error)}.",
                hint="Check `staging_url` and the credentials of AWS here; the load is retried.",
            ) from error
        try:
            yield f"s3://{place}/"
        finally:
            try:
                store.delete_dir(place)
            except (OSError, pa.ArrowException):
                pass  # the bucket's lifecycle rule removes it

    def translated(self, error: psycopg.Error) -> WarehouseError:
        text = f"{first_line(error)}."
        # a NULL in a column that refuses it has the SQLSTATE of internal errors, and no other sign
        if error.sqlstate == _INTERNAL and text.lower().startswith(_NULL_NOT_ALLOWED):
            return RowsRefused(text)
        if "stl_load_errors" in text or "sys_load_error_detail" in text:
            return DestinationUnavailable(
                f"destination {self.id}: {text}",
                hint="Ask Redshift: SELECT * FROM sys_load_error_detail ORDER BY start_time DESC LIMIT 5.",
            )
        return super().translated(error)
