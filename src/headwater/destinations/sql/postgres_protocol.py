"""What Postgres and Redshift share: the client, and tables in a schema."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
import psycopg

from headwater.destinations.sql.errors import error_of_sqlstate, first_line
from headwater.destinations.sql.ledger import LEDGER, Ledger
from headwater.destinations.sql.sql_destination import SqlDestination
from headwater.errors import DestinationUnavailable, WarehouseError

logger = logging.getLogger(__name__)

OWN_SCHEMA, FORMER_SCHEMA = "headwater", "public"
"""The schema of tables where none is configured, and that of releases which had no schema of their own."""


class PostgresProtocolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of both products."""

    url: Annotated[
        str,
        msgspec.Meta(description="The database, such as `postgresql://user:${env.PGPASSWORD}@host:5432/db`."),
    ]
    schema: Annotated[
        str,
        msgspec.Meta(
            description="Schema of the tables; created if it does not exist; empty: `headwater`, or `public` "
            "if an earlier release has its ledger there."
        ),
    ] = ""
    connect_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="Time limit for a new connection.")
    ] = 10
    statement_timeout_seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0, description="A statement that takes longer is cancelled and its load retried; 0: no limit."
        ),
    ] = 1_800.0


class PostgresProtocolDestination(SqlDestination):
    """Statements through psycopg, and tables in a schema."""

    product: ClassVar[str]
    default_port: ClassVar[int]
    default_database: ClassVar[str] = ""
    row_error_classes: ClassVar[tuple[str, ...]] = ("22", "23")
    """Classes of SQLSTATE that blame a row."""

    def __init__(self, id: str, options: Any) -> None:
        self.schema = options.schema or OWN_SCHEMA
        super().__init__(id, options)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def dataset(self, table: str) -> tuple[str, str]:
        url = urlsplit(self.options.url)
        namespace = f"{self.product.lower()}://{url.hostname or 'localhost'}:{url.port or self.default_port}"
        return namespace, f"{url.path.strip('/') or self.default_database}.{self.schema}.{table}"

    def connect(self) -> None:
        if self._connection is not None:
            return
        try:
            self._connection = psycopg.connect(
                self.options.url,
                autocommit=True,
                prepare_threshold=None,  # a connection pooler may not keep prepared statements
                connect_timeout=self.options.connect_timeout_seconds,
                client_encoding="utf8",  # Redshift calls its own UNICODE, which the client does not know
                application_name="headwater",
            )
        except psycopg.Error as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to {self.product}: {first_line(error)}.",
                hint="Check `url`, and that the server lets this machine in; the load is retried.",
            ) from error
        with self.closed_on_error(), self.using_own_tables():
            self.execute(f"SET statement_timeout TO {round(self.options.statement_timeout_seconds * 1000)}")
            self.prepare_session()

    @abstractmethod
    def prepare_session(self) -> None:
        """Set the session's parameters, and create what Headwater needs."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ready(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The open connection."""
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            raise DestinationUnavailable(
                f"destination {self.id} is not connected.", hint="The load is retried."
            )
        return self._connection

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            cursor = self.ready().execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self.translated(error) from error

    def translated(self, error: psycopg.Error) -> WarehouseError:
        """The client's error as one of the contract."""
        return error_of_sqlstate(self.id, error, error.sqlstate or "", rows=self.row_error_classes)

    def choose_schema(self) -> None:
        """Stay in the former default schema if the ledger is there, and no schema is configured."""
        if self.options.schema:
            return
        schemas = ", ".join(map(self.dialect.literal, (OWN_SCHEMA, FORMER_SCHEMA)))
        found = self.execute(
            "SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE c.relname = {self.dialect.literal(LEDGER)} AND n.nspname IN ({schemas})"
        )
        if found == [(FORMER_SCHEMA,)]:
            logger.info(
                "destination %s: the tables stay in the schema %s, where the ledger is; "
                "set `schema: %s` to state that.",
                self.id,
                FORMER_SCHEMA,
                FORMER_SCHEMA,
            )
            self.schema = FORMER_SCHEMA
            self.ledger = Ledger(self.relation(LEDGER), self.dialect)

    def create_schema(self) -> None:
        """Create the schema unless it exists: IF NOT EXISTS needs a privilege even where it does."""
        name = self.dialect.fold(self.schema)
        if not self.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = {self.dialect.literal(name)}"):
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.dialect.quoted(name)}")

    def relation(self, name: str) -> str:
        return f"{self.dialect.quoted(self.schema)}.{self.dialect.quoted(name)}"
