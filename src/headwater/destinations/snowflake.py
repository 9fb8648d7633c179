"""Snowflake (beta): files put on an internal stage, COPY INTO, and one transaction.

COPY INTO fills a transient staging table. Then one transaction enters the load in the ledger by a MERGE,
which makes other attempts of the same load wait, checks that the entry is its own, casts and stores the rows,
and commits. Statements that change tables would end the transaction, so it has none (G5). Snowflake rolls a
killed session's transaction back after some minutes, in which other loads may wait; the staging table of a
killed load has a random name and must be dropped by its owner.

Names are stored as Snowflake stores a name without quotes, in upper case: queries need no quotes, and `table`
returns them in lower case. Columns created with quotes and lower-case letters are ignored. Keys are declared
there and not enforced.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa
import snowflake.connector
from snowflake.connector import errors

from headwater.destinations.base import Capabilities, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.json_entries import VARIANT
from headwater.destinations.sql.dialect import ASCII_LOWER, ASCII_UPPER, Dialect
from headwater.destinations.sql.errors import CHANGED, contract_error, error_of_sqlstate, first_line
from headwater.destinations.sql.file_load import FileLoadDestination, TransferFormat
from headwater.destinations.sql.ledger import LEDGER, Ledger
from headwater.destinations.staged_files import Form
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError
from headwater.settings import PATH

logger = logging.getLogger(__name__)
logging.getLogger("snowflake.connector").setLevel(logging.WARNING)  # it logs every statement at INFO

OWN_SCHEMA, FORMER_SCHEMA = "HEADWATER", "PUBLIC"
"""The schema of tables where none is configured, and that of releases which had no schema of their own."""

_STAGE = "_HEADWATER_STAGE"
_NUMERIC, _INTEGER, _NTZ = "NUMBER(38,18)", "NUMBER(38,0)", "TIMESTAMP_NTZ"
_DOES_NOT_EXIST = 2003
_NULL_NOT_ALLOWED = 100072


class SnowflakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `snowflake`."""

    account: Annotated[str, msgspec.Meta(description="The account, such as `myorg-myaccount`.")]
    user: Annotated[str, msgspec.Meta(description="The user.")]
    database: Annotated[str, msgspec.Meta(description="Database of the tables; it must exist.")]
    schema: Annotated[
        str,
        msgspec.Meta(
            description="Schema of the tables; created if it does not exist; empty: `HEADWATER`, or `PUBLIC` "
            "if an earlier release has its ledger there."
        ),
    ] = ""
    warehouse: Annotated[str, msgspec.Meta(description="Virtual warehouse; empty: the user's default.")] = ""
    role: Annotated[str, msgspec.Meta(description="Role; empty: the user's default.")] = ""
    password: Annotated[str, msgspec.Meta(description="The password; write it as `${env.NAME}`.")] = ""
    private_key_file: Annotated[
        str, msgspec.Meta(description="File of the user's private key, instead of a password."), PATH
    ] = ""
    private_key_password: Annotated[str, msgspec.Meta(description="Password of `private_key_file`.")] = ""
    login_timeout_seconds: Annotated[int, msgspec.Meta(ge=1, description="Time limit for the login.")] = 30
    lock_timeout_seconds: Annotated[
        int,
        msgspec.Meta(ge=0, description="A table that another transaction locks for longer is loaded later."),
    ] = 60
    statement_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="A statement that takes longer ends, and its load is retried.")
    ] = 1_800
    parameters: Annotated[
        dict[str, str | int | bool],
        msgspec.Meta(description="Further arguments of Snowflake's `connect`, such as `authenticator`."),
    ] = msgspec.field(default_factory=dict)


class SnowflakeDialect(Dialect):
    """Names stored in upper case and returned in lower case; a backslash escapes in literals."""

    def fold(self, name: str) -> str:
        return name.translate(ASCII_LOWER)

    def quoted(self, name: str) -> str:
        return super().quoted(name.translate(ASCII_UPPER))

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def parse_json(self, text: str) -> str:
        return f"COALESCE(TRY_PARSE_JSON({text}), TO_VARIANT({text}))"

    def has_key(self, text: str, name: str) -> str:
        return f"GET(TRY_PARSE_JSON({text}), {self.literal(name)}) IS NOT NULL"


class SnowflakeDestination(FileLoadDestination):
    """Rows in a schema of a Snowflake database."""

    Settings: ClassVar[type[msgspec.Struct]] = SnowflakeSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "text",
            Kind.FLOAT64: "numeric(38,18)",
            Kind.INT64: "bigint",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: "timestamp_ntz",
            Kind.JSON: "variant",
        },
        max_identifier_length=255,
        max_columns=2_000,
        folds_case=True,
        supports_transactions=True,
        # as columns they would need quotes, and are functions without
        reserved_columns=frozenset(
            {
                "current_date",
                "current_time",
                "current_timestamp",
                "current_user",
                "localtime",
                "localtimestamp",
            }
        ),
    )
    kinds: ClassVar[dict[str, Kind]] = {"number": Kind.FLOAT64, "variant": Kind.JSON}
    creates_in_transactions = False
    options: SnowflakeSettings
    dialect = SnowflakeDialect()
    staging_types: ClassVar[dict[Form, str]] = {
        Form.TEXT: "text",
        Form.INTEGER: "bigint",
        Form.FLOAT: "double",
        Form.BOOLEAN: "boolean",
        Form.TIME: "bigint",
        Form.DECIMAL: "numeric(38,18)",
    }
    native_forms: ClassVar[dict[str, Form]] = {
        "TEXT": Form.TEXT,
        "VARIANT": Form.TEXT,
        _INTEGER: Form.INTEGER,
        "FLOAT": Form.FLOAT,
        "BOOLEAN": Form.BOOLEAN,
        _NTZ: Form.TIME,
    }
    decimal_type = _NUMERIC
    staged_time = "TO_TIMESTAMP_NTZ({}, 6)"
    now = "CAST(CURRENT_TIMESTAMP() AS TIMESTAMP_NTZ)"
    # times as microseconds: COPY guesses the unit of Parquet's own times
    transfer_format = TransferFormat(pa.int64(), json_limits=VARIANT)

    def __init__(self, id: str, options: Any) -> None:
        self.schema = options.schema or OWN_SCHEMA
        super().__init__(id, options)
        self._connection: Any = None

    def dataset(self, table: str) -> tuple[str, str]:
        name = f"{self.options.database}.{self.schema}.{table}"
        return f"snowflake://{self.options.account}", name.upper()

    def connect(self) -> None:
        if self._connection is not None:
            return
        options = self.options
        arguments = {
            "warehouse": options.warehouse,
            "role": options.role,
            "password": options.password,
            "private_key_file": options.private_key_file,
            "private_key_file_pwd": options.private_key_password,
        }
        try:
            self._connection = snowflake.connector.connect(
                account=options.account,
                user=options.user,
                database=options.database,
                autocommit=True,
                session_parameters={
                    "TIMEZONE": "UTC",
                    "LOCK_TIMEOUT": options.lock_timeout_seconds,
                    "STATEMENT_TIMEOUT_IN_SECONDS": options.statement_timeout_seconds,
                },
                login_timeout=options.login_timeout_seconds,
                application="headwater",
                # no thread of the client outlives `close`
                enable_server_session_keep_alive_auto_detection=False,
                **{name: value for name, value in arguments.items() if value},
                **options.parameters,
            )
        except (errors.Error, OSError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to Snowflake: {first_line(error)}.",
                hint="Check `account`, `user` and their key or password; the load is retried.",
            ) from error
        with self.closed_on_error(), self.using_own_tables():
            self._prepare_session()

    def _prepare_session(self) -> None:
        self._choose_schema()
        database, schema = self.options.database, self.schema
        place = f"{self.dialect.quoted(database)}.{self.dialect.quoted(schema)}"
        if not self.execute(
            f"SELECT 1 FROM {self.dialect.quoted(database)}.information_schema.schemata "
            f"WHERE schema_name = {self._stored(schema)}"
        ):
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
        self.execute(f"USE SCHEMA {place}")
        self.execute(f"CREATE TEMPORARY STAGE IF NOT EXISTS {_STAGE}")
        self.create_own_tables(f"{self.dialect.quoted('attempt')} text")

    def _choose_schema(self) -> None:
        """Stay in the former default schema if the ledger is there, and no schema is configured."""
        if self.options.schema:
            return
        found = self.execute(
            "SELECT table_schema "
            f"FROM {self.dialect.quoted(self.options.database)}.information_schema.tables "
            f"WHERE table_name = {self._stored(LEDGER)} "
            f"AND table_schema IN ('{OWN_SCHEMA}', '{FORMER_SCHEMA}')"
        )
        if found == [(FORMER_SCHEMA,)]:
            logger.info("destination %s: the tables stay in %s, where the ledger is.", self.id, FORMER_SCHEMA)
            self.schema = FORMER_SCHEMA
            self.ledger = Ledger(self.relation(LEDGER), self.dialect)

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except errors.Error:
                pass  # the server ends idle sessions

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except errors.Error as error:
            raise self._translated(error) from error

    def relation(self, name: str) -> str:
        names = (self.options.database, self.schema, name)
        return ".".join(self.dialect.quoted(each) for each in names)

    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        try:
            found = self.execute(f"DESCRIBE TABLE {self.relation(name)}")
        except _DoesNotExist:
            return None
        columns = [
            (self.dialect.fold(column), _type_of(type))
            for column, type, *_ in found
            if column == column.upper() or not column.isascii()
        ]
        keys = self.execute(f"SHOW PRIMARY KEYS IN TABLE {self.relation(name)}")
        # created_on, database_name, schema_name, table_name, column_name, key_sequence, …
        own = [row for row in keys if self.dialect.fold(str(row[2])) == self.dialect.fold(self.schema)]
        in_order = sorted(own, key=lambda row: int(row[5]))
        return columns, tuple(self.dialect.fold(str(row[4])) for row in in_order)

    def check_ours(self, name: str) -> None:
        # DESCRIBE TABLE describes views too
        if self.execute(
            f"SELECT 1 FROM {self.dialect.quoted(self.options.database)}.information_schema.views "
            f"WHERE table_schema = {self._stored(self.schema)} AND table_name = {self._stored(name)}"
        ):
            raise self.view_error(name)
        super().check_ours(name)

    def kind_of(self, sql_type: str) -> Kind:
        is_integer = sql_type.startswith("NUMBER(") and sql_type.endswith(",0)")
        return Kind.INT64 if is_integer else super().kind_of(sql_type)

    def add_columns(self, table: str, definitions: Sequence[str]) -> None:
        self.execute(f"ALTER TABLE {self.relation(table)} ADD COLUMN {', '.join(definitions)}")

    def create_staging_table(self, name: str, definitions: str) -> None:
        # transient: it has no history, and unlike a temporary table it outlives a lost connection
        self.execute(f"CREATE TRANSIENT TABLE {self.staging_table(name)} ({definitions})")

    def load_file(self, name: str, file: Path) -> None:
        place = f"@{_STAGE}/{name}"
        self.execute(f"PUT 'file://{file.as_posix()}' {place} AUTO_COMPRESS = FALSE OVERWRITE = TRUE")
        self.execute(
            f"COPY INTO {self.staging_table(name)} FROM {place} FILE_FORMAT = (TYPE = PARQUET) "
            "MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE PURGE = TRUE"
        )

    def try_cast(self, value: str, type: str) -> str:
        # TRY_CAST has no text to text form, and a text that is too long must not end the load
        if type.startswith("VARCHAR("):
            return f"CASE WHEN length({value}) <= {int(type[8:-1])} THEN {value} END"
        if type.startswith("TIMESTAMP"):  # TRY_CAST reads a number as seconds, milliseconds, …
            return f"CASE WHEN {value} LIKE '____-__-__%' THEN TRY_CAST({value} AS {type}) END"
        return f"TRY_CAST({value} AS {type})"

    def claim_load(self, table: str, loaded: Loaded) -> bool:
        attempt = uuid.uuid4().hex
        self.execute(self.ledger.merge(table, loaded, attempt, self.now))
        # The MERGE holds the ledger's lock from here on, but it may have read before it waited for the lock.
        # This query sees all that is committed.
        return self.execute(self.ledger.attempt_query(loaded.id)) == [(attempt,)]

    def _stored(self, name: str) -> str:
        return self.dialect.literal(self.dialect.quoted(name)[1:-1].replace('""', '"'))

    def _translated(self, error: errors.Error) -> WarehouseError:
        state, is_null = error.sqlstate or "", error.errno == _NULL_NOT_ALLOWED
        if error.errno == _DOES_NOT_EXIST:
            return _DoesNotExist(f"{first_line(error)}.", hint=CHANGED)
        if is_null or state[:2] == "02":
            return contract_error(self.id, error, blames_row=is_null, blames_table=True)
        return error_of_sqlstate(self.id, error, state)


class _DoesNotExist(LoadRefused):
    """A table does not exist."""


def _type_of(text: str) -> str:
    """The type without a length or precision that is the greatest one."""
    if text in ("VARCHAR(16777216)", "VARCHAR(134217728)"):
        return "TEXT"
    return _NTZ if text == f"{_NTZ}(9)" else text
