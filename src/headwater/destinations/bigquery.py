"""BigQuery (beta): load jobs of Parquet, and one script that is a transaction.

A load job fills a staging table that expires after a day. Then one script, which is one job that the service
completes on its own, enters the load in the ledger by a MERGE, stores the rows and commits. Of two scripts
that change the ledger at once BigQuery cancels one, which is retried; a script that finds the load entered by
another attempt rolls back (G5).

A table refuses names of columns with other characters than letters, digits and underscores; the pipeline
makes none. Keys are declared there and not enforced.
"""

from __future__ import annotations

import re
import string
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth import credentials as auth
from google.auth import exceptions as auth_exceptions
from google.cloud import bigquery
from google.cloud.bigquery.retry import DEFAULT_RETRY

from headwater.destinations.base import Capabilities, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.errors import contract_error, first_line
from headwater.destinations.sql.file_load import FileLoadDestination
from headwater.destinations.staged_files import Form
from headwater.destinations.table import Column, Table
from headwater.errors import DestinationUnavailable, TableRefused
from headwater.settings import PATH
from headwater.system.crash_points import crash_point

_COLUMN = re.compile(r"[^\W\d][\w]*", re.UNICODE)
_TABLE = re.compile(r"[\w -]+", re.UNICODE)
_NULL_NOT_ALLOWED = ("required field", "cannot be null", "not null")
_RESERVED = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier")
_INVALID = ("invalid", "invalidQuery", "badRequest")
_CONFLICT = "aborted due to concurrent update"
"""The service gives a conflict the reason of a bad query: only its text differs."""
_SQL_TYPES = {"float": "FLOAT64", "integer": "INT64", "boolean": "BOOL", "string": "STRING"}
"""SQL names of types that BigQuery's schemas name otherwise."""
_SCHEMA_TYPES = {sql: name for name, sql in _SQL_TYPES.items()}


class BigQuerySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `bigquery`."""

    project: Annotated[str, msgspec.Meta(description="The project.")]
    dataset: Annotated[str, msgspec.Meta(description="Dataset of the tables; created if it does not exist.")]
    location: Annotated[str, msgspec.Meta(description="Location of a new dataset, such as `EU`.")] = "US"
    credentials_file: Annotated[
        str,
        msgspec.Meta(description="Key file of a service account; empty: Google's default credentials."),
        PATH,
    ] = ""
    api_endpoint: Annotated[
        str, msgspec.Meta(description="Another address of the service; with http:// no credentials are sent.")
    ] = ""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, description="Time limit for a request.")] = 60
    statement_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, description="A job that takes longer ends, and its load is retried.")
    ] = 1_800


class BigQueryDialect(Dialect):
    """Names in backticks; a backslash escapes in literals."""

    def quoted(self, name: str) -> str:
        return f"`{name}`"  # `patch` refuses names with a backtick

    def literal(self, text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"'{escaped}'"

    def has_key(self, text: str, name: str) -> str:
        path = self.literal(f'$."{name}"')  # a column's name has no quote
        return f"JSON_QUERY({text}, {path}) IS NOT NULL"


class BigQueryDestination(FileLoadDestination):
    """Rows in a dataset of BigQuery."""

    Settings: ClassVar[type[msgspec.Struct]] = BigQuerySettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "string",
            Kind.FLOAT64: "float",
            Kind.INT64: "integer",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: "timestamp",
            Kind.JSON: "string",
        },
        max_identifier_length=300,
        max_columns=10_000,
        folds_case=True,
        supports_transactions=True,
        any_letters=True,
        reserved_columns=frozenset({"_change_sequence_number", "_change_timestamp", "_change_type"}),
        reserved_prefixes=(*_RESERVED, *string.digits),
    )
    kinds: ClassVar[dict[str, Kind]] = {"bignumeric": Kind.FLOAT64}
    creates_in_transactions = False
    options: BigQuerySettings
    dialect = BigQueryDialect()
    staging_types: ClassVar[dict[Form, str]] = {
        Form.TEXT: "STRING",
        Form.INTEGER: "INT64",
        Form.FLOAT: "FLOAT64",
        Form.BOOLEAN: "BOOL",
        Form.TIME: "TIMESTAMP",
    }
    native_forms: ClassVar[dict[str, Form]] = {
        "string": Form.TEXT,
        "integer": Form.INTEGER,
        "float": Form.FLOAT,
        "boolean": Form.BOOLEAN,
        "timestamp": Form.TIME,
    }
    now = "CURRENT_TIMESTAMP()"

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._client: bigquery.Client | None = None

    def dataset(self, table: str) -> tuple[str, str]:
        return "bigquery", f"{self.options.project}.{self.options.dataset}.{table}"

    def connect(self) -> None:
        if self._client is not None:
            return
        options = self.options
        try:
            client = bigquery.Client(
                project=options.project,
                location=options.location,
                credentials=self._credentials(),
                client_options=ClientOptions(api_endpoint=options.api_endpoint or None),
            )
            client.create_dataset(
                bigquery.Dataset(f"{options.project}.{options.dataset}"),
                exists_ok=True,
                retry=DEFAULT_RETRY.with_timeout(options.timeout_seconds),
                timeout=options.timeout_seconds,
            )
        except (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError, OSError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: no connection to BigQuery: {first_line(error)}.",
                hint="Check `project`, `dataset` and the credentials; the load is retried.",
            ) from error
        self._client = client
        with self.closed_on_error():
            self.create_own_tables("`attempt` STRING")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()  # type: ignore[no-untyped-call]
            self._client = None

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connected() as client:
            # no retry: a script may have been executed though its answer was lost
            job = client.query(
                statement,
                bigquery.QueryJobConfig(job_timeout_ms=self.options.statement_timeout_seconds * 1000),
                retry=None,  # type: ignore[arg-type]
                job_retry=None,
                timeout=self.options.timeout_seconds,
            )
            limit = self.options.statement_timeout_seconds
            rows = job.result(job_retry=None, timeout=limit, retry=DEFAULT_RETRY.with_timeout(limit))
            return [tuple(row.values()) for row in rows]

    def relation(self, name: str) -> str:
        return f"`{self.options.project}`.`{self.options.dataset}`.`{name}`"

    def sql_type(self, kind: Kind) -> str:
        return _sql_type(super().sql_type(kind))

    def column_type(self, column: Column) -> str:
        return _sql_type(super().column_type(column))

    def patch(self, wanted: Table) -> Table:
        for name in wanted.columns:
            if not _COLUMN.fullmatch(name) or name.lower().startswith(_RESERVED):
                raise TableRefused(f"{name[:80]!r} cannot be a column in BigQuery.")
        if not _TABLE.fullmatch(wanted.name):
            raise TableRefused(f"{wanted.name[:80]!r} cannot be a table in BigQuery.")
        return super().patch(wanted)

    def structure(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]] | None:
        place = f"{self.options.project}.{self.options.dataset}.{name}"
        with self._connected() as client:
            try:
                found = client.get_table(
                    place, retry=DEFAULT_RETRY.with_timeout(self.options.timeout_seconds)
                )
            except exceptions.NotFound:
                return None
        if found.table_type in ("VIEW", "MATERIALIZED_VIEW"):
            raise self.view_error(name)
        constraints = found.table_constraints
        key = constraints.primary_key.columns if constraints and constraints.primary_key else ()
        return [(field.name, _type_of(field)) for field in found.schema], tuple(key)

    def add_columns(self, table: str, definitions: Sequence[str]) -> None:
        added = ", ".join(f"ADD COLUMN {definition}" for definition in definitions)
        self.execute(f"ALTER TABLE {self.relation(table)} {added}")

    def create_staging_table(self, name: str, definitions: str) -> None:
        self.execute(
            f"CREATE TABLE {self.staging_table(name)} ({definitions}) "
            "OPTIONS (expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 DAY))"
        )

    def load_file(self, name: str, file: Path) -> None:
        config = bigquery.LoadJobConfig(
            source_format=bigquery.SourceFormat.PARQUET,
            create_disposition=bigquery.CreateDisposition.CREATE_NEVER,
            write_disposition=bigquery.WriteDisposition.WRITE_APPEND,
            job_timeout_ms=self.options.statement_timeout_seconds * 1000,
        )
        place = f"{self.options.project}.{self.options.dataset}.{name}"
        with self._connected() as client, file.open("rb") as source:
            job = client.load_table_from_file(
                source, place, job_config=config, timeout=float(self.options.timeout_seconds)
            )
            job.result(retry=None, timeout=float(self.options.statement_timeout_seconds))

    def try_cast(self, value: str, type: str) -> str:
        return f"SAFE_CAST({value} AS {_sql_type(type)})"

    def days_ago(self, days: int) -> str:
        return f"TIMESTAMP_SUB({self.now}, INTERVAL {days} DAY)"

    def execute_together(self, work: Sequence[str]) -> None:
        self.execute(";\n".join(["BEGIN TRANSACTION", *work, "COMMIT TRANSACTION;"]))

    def commit_load(self, table: str, loaded: Loaded, work: Sequence[str]) -> bool:
        attempt, who = uuid.uuid4().hex, self.ledger.attempt_query(loaded.id)
        crash_point("load.before_commit")
        self.execute(
            "\n".join(
                [
                    "BEGIN TRANSACTION;",
                    f"{self.ledger.merge(table, loaded, attempt, self.now)};",
                    f"IF EXISTS ({who} AND attempt = {self.dialect.literal(attempt)}) THEN",
                    *(f"{statement};" for statement in work),
                    "COMMIT TRANSACTION;",
                    "ELSE",
                    "ROLLBACK TRANSACTION;",
                    "END IF;",
                ]
            )
        )
        entered = self.execute(who)
        if not entered:
            raise DestinationUnavailable(
                f"destination {self.id}: the script of the load {loaded.id} ended without entering it.",
                hint="The load is retried.",
            )
        crash_point("load.after_commit")
        return entered == [(attempt,)]

    def try_and_roll_back(self, work: Sequence[str]) -> None:
        self.execute(";\n".join(["BEGIN TRANSACTION", *work, "ROLLBACK TRANSACTION;"]))

    def _credentials(self) -> Any:
        if self.options.api_endpoint.startswith("http://"):
            return auth.AnonymousCredentials()  # type: ignore[no-untyped-call]
        if not self.options.credentials_file:
            return None
        from google.oauth2 import service_account

        return service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
            self.options.credentials_file
        )

    @contextmanager
    def _connected(self) -> Iterator[bigquery.Client]:
        """The client, with its errors as those of the contract."""
        if self._client is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        try:
            yield self._client
        except (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError, OSError) as error:
            text = first_line(error).lower()
            is_invalid = _is_invalid(error) and _CONFLICT not in text
            raise contract_error(
                self.id,
                error,
                # both are searched for rows, one of them by this destination
                blames_row=is_invalid and any(words in text for words in _NULL_NOT_ALLOWED),
                blames_table=isinstance(error, exceptions.NotFound) or is_invalid,
            ) from error


def _is_invalid(error: Exception) -> bool:
    """Whether the service blames the statement or its values, and not itself: jobs that it gave up, quotas
    and tables that are unavailable have the same HTTP status, but other reasons or none.
    """
    if not isinstance(error, exceptions.BadRequest):
        return False
    reasons = [each.get("reason") for each in error.errors if isinstance(each, dict)]
    return bool(reasons) and all(reason in _INVALID for reason in reasons)


def _sql_type(type: str) -> str:
    return _SQL_TYPES.get(type.lower(), type)


def _type_of(field: bigquery.SchemaField) -> str:
    """The type of a column as BigQuery's schemas name it."""
    type = _SCHEMA_TYPES.get(field.field_type, field.field_type).lower()
    if field.mode == "REPEATED":
        return f"array<{type}>"
    if field.precision is not None:
        return f"{type}({field.precision},{field.scale or 0})"
    return f"{type}({field.max_length})" if field.max_length is not None else type
