"""Snowflake (beta): files put on an internal stage, COPY INTO, and one transaction.

COPY INTO fills a transient table beside the target. Then one transaction enters the load in the ledger by a
MERGE, which makes another of the same load wait, looks whether it is alone there, casts and stores the rows,
and commits: statements that change tables would end a transaction, so there are none in it (G5). If a session
is killed half-way, Snowflake undoes its transaction after some minutes, in which others may have to wait. The
table beside is named by chance; one that a
killed load left is to be dropped by hand.

Names are stored as Snowflake stores a name without quotes: in upper case. So nobody needs quotes to ask for a
column, and `table` tells them in lower case. A column that somebody made with quotes and lower-case letters
is left alone. Keys are declared there and not enforced.
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

from headwater.crash_points import crash_point
from headwater.destinations.base import Capabilities, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.merging import SqlMergingDestination, Undo
from headwater.destinations.sql.transactional import first_line
from headwater.destinations.sql.transfer_columns import Form
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError

__all__ = ["SnowflakeDestination", "SnowflakeSettings"]

logging.getLogger("snowflake.connector").setLevel(logging.WARNING)  # it tells every statement otherwise

_STAGE = "_HEADWATER_STAGE"
_NUMERIC, _INTEGER, _MOMENT = "NUMBER(38,18)", "NUMBER(38,0)", "TIMESTAMP_NTZ"
_NOT_THERE = 2003
_NULL_REFUSED = 100072


class SnowflakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `snowflake`."""

    account: Annotated[str, msgspec.Meta(description="The account, such as `myorg-myaccount`.")]
    user: Annotated[str, msgspec.Meta(description="The user.")]
    database: Annotated[str, msgspec.Meta(description="Database of the tables; it must be there.")]
    schema: Annotated[str, msgspec.Meta(description="Schema of the tables; made if it is not there.")] = (
        "PUBLIC"
    )
    warehouse: Annotated[
        str, msgspec.Meta(description="Warehouse that does the work; empty: the user's.")
    ] = ""
    role: Annotated[str, msgspec.Meta(description="Role; empty: the user's.")] = ""
    password: Annotated[str, msgspec.Meta(description="Write it as `${env.NAME}`.")] = ""
    private_key_file: Annotated[
        str, msgspec.Meta(description="The user's key, in the place of a password.")
    ] = ""
    private_key_password: Annotated[str, msgspec.Meta(description="Of that file.")] = ""
    login_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="Snowflake must let us in within this time.")
    ] = 30
    parameters: Annotated[
        dict[str, str | int | bool],
        msgspec.Meta(description="Further arguments of Snowflake's `connect`, such as `authenticator`."),
    ] = msgspec.field(default_factory=dict)


class SnowflakeSql(Dialect):
    """Upper case there is lower case here; a backslash escapes in texts."""

    def fold(self, name: str) -> str:
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    def quoted(self, name: str) -> str:
        return super().quoted("".join(letter.upper() if letter.isascii() else letter for letter in name))

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class SnowflakeDestination(SqlMergingDestination):
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
    )
    options: SnowflakeSettings
    sql = SnowflakeSql()
    staging_types: ClassVar[dict[Form, str]] = {
        Form.TEXT: "text",
        Form.INTEGER: "bigint",
        Form.FLOAT: "double",
        Form.BOOLEAN: "boolean",
        Form.TIME: "bigint",
        Form.DECIMAL: "numeric(38,18)",
    }
    natural: ClassVar[dict[str, Form]] = {
        "TEXT": Form.TEXT,
        "VARIANT": Form.TEXT,
        _INTEGER: Form.INTEGER,
        "FLOAT": Form.FLOAT,
        "BOOLEAN": Form.BOOLEAN,
        _MOMENT: Form.TIME,
    }
    decimal_type = _NUMERIC
    now = "CAST(CURRENT_TIMESTAMP() AS TIMESTAMP_NTZ)"
    time_type = pa.int64()  # microseconds: COPY guesses the unit of Parquet's own times

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._connection: Any = None

    def dataset(self, table: str) -> tuple[str, str]:
        name = f"{self.options.database}.{self.options.schema}.{table}"
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
                session_parameters={"TIMEZONE": "UTC"},
                login_timeout=options.login_timeout_seconds,
                application="headwater",
                # nothing of ours runs on after `close`
                enable_server_session_keep_alive_auto_detection=False,
                **{name: value for name, value in arguments.items() if value},
                **options.parameters,
            )
        except (errors.Error, OSError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to Snowflake: {first_line(error)}.",
                hint="Check `account`, `user` and their key or password; it is tried again.",
            ) from error
        place = f"{self.sql.quoted(options.database)}.{self.sql.quoted(options.schema)}"
        if not self.execute(
            f"SELECT 1 FROM {self.sql.quoted(options.database)}.information_schema.schemata "
            f"WHERE schema_name = {self._stored(options.schema)}"
        ):
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
        self.execute(f"USE SCHEMA {place}")
        self.execute(f"CREATE TEMPORARY STAGE IF NOT EXISTS {_STAGE}")
        self.make_own_tables()

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except errors.Error:
                pass  # the server ends sessions by itself

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
        names = (self.options.database, self.options.schema, name)
        return ".".join(self.sql.quoted(each) for each in names)

    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        try:
            found = self.execute(f"DESCRIBE TABLE {self.relation(name)}")
        except _NotThere:
            return None
        columns = [
            (self.sql.fold(column), _type_of(type))
            for column, type, *_ in found
            if column == column.upper() or not column.isascii()
        ]
        keys = self.execute(f"SHOW PRIMARY KEYS IN TABLE {self.relation(name)}")
        # created_on, database_name, schema_name, table_name, column_name, key_sequence, …
        own = [row for row in keys if self.sql.fold(str(row[2])) == self.sql.fold(self.options.schema)]
        in_order = sorted(own, key=lambda row: int(row[5]))
        return columns, tuple(self.sql.fold(str(row[4])) for row in in_order)

    def kind_of(self, sql_type: str) -> Kind:
        name, _, rest = sql_type.partition("(")
        if name == "NUMBER":
            return Kind.INT64 if rest.endswith(",0)") else Kind.FLOAT64
        kinds = {"FLOAT": Kind.FLOAT64, "BOOLEAN": Kind.BOOL, "VARIANT": Kind.JSON}
        return Kind.TIMESTAMP if name.startswith("TIMESTAMP") else kinds.get(name, Kind.STRING)

    def add_columns(self, table: str, columns: Sequence[str]) -> None:
        self.execute(f"ALTER TABLE {self.relation(table)} ADD COLUMN {', '.join(columns)}")

    def fill(self, name: str, columns: str, files: Sequence[Path]) -> None:
        beside = self.relation_beside(name)
        # transient: no copies of it are kept, and unlike a temporary one it outlives a lost connection
        self.execute(f"CREATE TRANSIENT TABLE {beside} ({columns})")
        if not files:
            return
        for file in files:
            self.execute(
                f"PUT 'file://{file.as_posix()}' @{_STAGE}/{name} AUTO_COMPRESS = FALSE OVERWRITE = TRUE"
            )
        self.execute(
            f"COPY INTO {beside} FROM @{_STAGE}/{name} FILE_FORMAT = (TYPE = PARQUET) "
            "MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE PURGE = TRUE"
        )

    def tried(self, value: str, type: str) -> str:
        # of texts there is no cast that could fail, but one that is too long must not end the load
        if type.startswith("VARCHAR("):
            return f"CASE WHEN length({value}) <= {int(type[8:-1])} THEN {value} END"
        if type.startswith("TIMESTAMP"):  # it would take a number for seconds, or for something smaller
            return f"CASE WHEN {value} LIKE '____-__-__%' THEN TRY_CAST({value} AS {type}) END"
        return f"TRY_CAST({value} AS {type})"

    def moment(self, value: str) -> str:
        return f"TO_TIMESTAMP_NTZ({value}, 6)"

    def json(self, text: str) -> str:
        return f"COALESCE(TRY_PARSE_JSON({text}), TO_VARIANT({text}))"

    def commit(self, table: str, loaded: Loaded, statements: Sequence[str]) -> bool:
        try:
            self._enter(table, loaded, statements)
        except Undo:
            return False
        return True

    def _enter(self, table: str, loaded: Loaded, statements: Sequence[str]) -> None:
        attempt = uuid.uuid4().hex
        columns, values = self.entry(table, loaded, attempt)
        id, mine = self.sql.quoted("load_id"), self.sql.literal(loaded.id)
        with self.transaction():
            self.execute(
                f"MERGE INTO {self.ledger} AS target USING (SELECT {mine} AS {id}) AS fresh "
                f"ON target.{id} = fresh.{id} WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
            )
            # The MERGE has the ledger's lock from here on; but one that had to wait for it may have read
            # before. So it is asked again who is there, and now all that is committed is seen.
            entered = self.execute(
                f"SELECT {self.sql.quoted('attempt')} FROM {self.ledger} WHERE {id} = {mine}"
            )
            if entered != [(attempt,)]:
                raise Undo
            for statement in statements:
                self.execute(statement)
            crash_point("load.before_commit")

    def _stored(self, name: str) -> str:
        return self.sql.literal(self.sql.quoted(name)[1:-1].replace('""', '"'))

    def _translated(self, error: errors.Error) -> WarehouseError:
        text, state = f"{first_line(error)}.", error.sqlstate or ""
        if error.errno == _NOT_THERE:
            return _NotThere(text, hint="The table may have changed meanwhile: run again.")
        if error.errno == _NULL_REFUSED or state[:2] in ("22", "23"):
            return RowsRefused(text)
        if state[:2] in ("42", "02"):
            return LoadRefused(text, hint="The table may have changed meanwhile: run again.")
        return DestinationUnavailable(f"destination {self.id}: {text}", hint="It is tried again.")


class _NotThere(LoadRefused):
    """A table is not there."""


def _type_of(text: str) -> str:
    """A type as it matters here: a text of the longest length is only a text."""
    if text in ("VARCHAR(16777216)", "VARCHAR(134217728)"):
        return "TEXT"
    return _MOMENT if text == f"{_MOMENT}(9)" else text
