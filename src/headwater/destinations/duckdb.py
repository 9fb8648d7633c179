"""DuckDB: the embedded default, one file and no server.

One process at a time has the file open; a second pipeline gets DestinationUnavailable and retries. DuckDB
reads the staged Parquet files itself, so the staging relation is `read_parquet`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import duckdb
import msgspec

from headwater.destinations.base import Capabilities
from headwater.destinations.column_types import Kind
from headwater.destinations.sql.dialect import ASCII_LOWER, Dialect, key_name
from headwater.destinations.sql.errors import contract_error, first_line
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.staged_files import Form, StagedFiles, form_of
from headwater.destinations.table import Column, Patch, Table
from headwater.errors import DestinationUnavailable, WarehouseError
from headwater.settings import PATH
from headwater.system.durable_files import exclusive, sync_file, sync_folder

_ROW_ERRORS = (
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)
_CHUNK = 100_000
_TABLE_ERRORS = (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException)


def exact_cast(value: str, form: Form, target: str) -> str:
    """SQL of the value in another type; NULL where it is none, or would be rounded."""
    fitted = f"TRY_CAST({value} AS {target})"
    if form is Form.FLOAT:  # as texts: 0.1 is the same number in REAL
        return f"CASE WHEN TRY_CAST(CAST({fitted} AS VARCHAR) AS DOUBLE) = {value} THEN {fitted} END"
    if form is Form.TIME:
        return f"CASE WHEN TRY_CAST({fitted} AS TIMESTAMP) = {value}::TIMESTAMP THEN {fitted} END"
    return fitted


class DuckDBSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `duckdb`."""

    path: Annotated[str, msgspec.Meta(description="The database file; created if it does not exist."), PATH]
    memory_limit: Annotated[
        str, msgspec.Meta(description="Memory limit of the engine, such as `2GB`; empty: DuckDB's default.")
    ] = ""
    storage_compatibility_version: Annotated[
        str,
        msgspec.Meta(
            description="Oldest DuckDB that can open a new file; an existing file keeps its format; "
            "empty: the installed release."
        ),
    ] = "v1.4.0"
    threads: Annotated[
        int, msgspec.Meta(ge=0, description="Threads of the engine; 0: one for each core.")
    ] = 0


class DuckDBDialect(Dialect):
    """DuckDB's aggregates and JSON."""

    def last_value(self, column: str, row: str) -> str:
        return f"arg_max({column}, {row})"  # of the rows in which the column is not NULL

    def parse_json(self, text: str) -> str:
        return f"CAST({text} AS JSON)"

    def has_key(self, text: str, name: str) -> str:
        found = f"list_contains(json_keys({text}), {self.literal(name)})"
        return f"CASE WHEN json_valid({text}) THEN {found} ELSE FALSE END"


class DuckDBDestination(SqlDestination):
    """Rows in a DuckDB file."""

    Settings: ClassVar[type[msgspec.Struct]] = DuckDBSettings
    dialect = DuckDBDialect()
    capabilities = Capabilities(
        types={
            Kind.STRING: "VARCHAR",
            Kind.FLOAT64: "DOUBLE",
            Kind.INT64: "BIGINT",
            Kind.BOOL: "BOOLEAN",
            Kind.TIMESTAMP: "TIMESTAMP",
            Kind.JSON: "JSON",
        },
        max_identifier_length=255,
        max_columns=10_000,
        folds_case=True,
        supports_transactions=True,
        any_letters=True,
        reserved_columns=frozenset({"rowid"}),
    )
    kinds: ClassVar[dict[str, Kind]] = dict.fromkeys(("utinyint", "usmallint", "uinteger"), Kind.INT64)
    native_forms: ClassVar[dict[str, Form]] = {
        "VARCHAR": Form.TEXT,
        "DOUBLE": Form.FLOAT,
        "BIGINT": Form.INTEGER,
        "BOOLEAN": Form.BOOLEAN,
    }
    options: DuckDBSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._connection: duckdb.DuckDBPyConnection | None = None

    def dataset(self, table: str) -> tuple[str, str]:
        return f"duckdb://{Path(self.options.path).resolve()}", f"main.{table}"

    def connect(self) -> None:
        if self._connection is not None:
            return
        path = Path(self.options.path)
        config = {"memory_limit": self.options.memory_limit, "threads": self.options.threads or ""}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                self._create_file(path)
            self._connection = duckdb.connect(str(path), config={k: v for k, v in config.items() if v})
        except (duckdb.Error, OSError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: {path} cannot be opened: {first_line(error)}.",
                hint="If another program has it open, close that program; then run again.",
            ) from error
        with self.closed_on_error():
            self.execute("SET TimeZone = 'UTC'")
            self.create_ledger("PRIMARY KEY (load_id)")

    def _create_file(self, path: Path) -> None:
        """Create the database beside its place and move it there.

        A disk that fails would leave the beginning of a file, which DuckDB never opens again. The format is
        no option of the connection, since all connections of a process must agree in those.
        """
        version = self.options.storage_compatibility_version
        option = f" (STORAGE_VERSION {self.dialect.literal(version)})" if version else ""
        draft, lock = (path.with_name(f".{path.name}.{suffix}") for suffix in ("tmp", "lock"))
        with exclusive(lock):
            try:
                if path.exists():
                    return  # another pipeline was faster
                draft.unlink(missing_ok=True)
                with duckdb.connect() as memory:
                    memory.execute(f"ATTACH {self.dialect.literal(str(draft))} AS made{option}")
                    memory.execute("DETACH made")
                sync_file(draft)
                draft.rename(path)
                sync_folder(path.parent)
            finally:
                draft.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def table(self, name: str) -> Table | None:
        literal = self.dialect.literal
        here = "schema_name = current_schema() AND database_name = current_database()"
        stored = self._stored_name(name, here)
        if stored is None:
            return None
        found = self.execute(
            f"SELECT column_name, data_type FROM duckdb_columns() WHERE {here} "
            f"AND table_name = {literal(stored)} AND NOT internal ORDER BY column_index"
        )
        indexes = self.execute(
            f"SELECT comment FROM duckdb_indexes() WHERE {here} AND index_name = {literal(key_name(name))}"
        )
        constraints = self.execute(
            f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {here} "
            f"AND table_name = {literal(stored)} AND constraint_type = 'PRIMARY KEY'"
        )
        return Table(
            name,
            {column: Column(column, self.kind_of(type), type) for column, type in found},
            tuple(msgspec.json.decode(indexes[0][0], type=list[str])) if indexes else (),
            tuple(constraints[0][0]) if constraints else (),
        )

    def _stored_name(self, name: str, here: str) -> str | None:
        """The name under which a table is stored: DuckDB compares names without regard to case."""
        found = self.execute(
            f"SELECT table_name, false FROM duckdb_tables() WHERE {here} AND NOT internal "
            f"AND lower(table_name) = lower({self.dialect.literal(name)}) UNION ALL "
            f"SELECT view_name, true FROM duckdb_views() WHERE {here} AND NOT internal "
            f"AND lower(view_name) = lower({self.dialect.literal(name)})"
        )
        folded = name.translate(ASCII_LOWER)
        for stored, is_view in found:
            if stored.translate(ASCII_LOWER) == folded:
                if is_view:
                    raise self.view_error(name)
                return str(stored)
        return None

    def alter(self, table: str, patch: Patch) -> None:
        name, key = self.relation(table), self.dialect.quoted(key_name(table))
        columns = self.column_definitions(patch.add)
        with self.transaction():
            if patch.create:
                self.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            if patch.drop_key:
                self.execute(f"DROP INDEX {key}")
            if not patch.create:
                for column in columns:
                    self.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
            if patch.set_key:
                self.execute(f"CREATE UNIQUE INDEX {key} ON {name} ({self.dialect.listed(patch.set_key)})")
                comment = msgspec.json.encode(patch.set_key).decode()
                self.execute(f"COMMENT ON INDEX {key} IS {self.dialect.literal(comment)}")

    row_id = "rowid"

    def widen_statements(self, table: Table, column: str, kind: Kind) -> list[str]:
        name, quoted = self.relation(table.name), self.dialect.quoted(column)
        value = quoted
        if table.columns[column].kind is Kind.TIMESTAMP:
            value = f"strftime({quoted}, '%Y-%m-%dT%H:%M:%S.%fZ')"
        work = [f"ALTER TABLE {name} ALTER COLUMN {quoted} TYPE {self.sql_type(kind)} USING {value}"]
        if not table.primary_key:
            return work
        # DuckDB alters no column of a table that has an index
        index = self.dialect.quoted(key_name(table.name))
        comment = self.dialect.literal(msgspec.json.encode(table.primary_key).decode())
        return [
            f"DROP INDEX {index}",
            *work,
            f"CREATE UNIQUE INDEX {index} ON {name} ({self.dialect.listed(table.primary_key)})",
            f"COMMENT ON INDEX {index} IS {comment}",
        ]

    def chunks(self, table: str) -> list[str]:
        [[last]] = self.execute(f"SELECT coalesce(max(rowid), -1) FROM {self.relation(table)}")
        return [f"rowid BETWEEN {at} AND {at + _CHUNK - 1}" for at in range(0, int(last) + 1, _CHUNK)]

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        try:
            return self._connection.execute(statement).fetchall()
        except duckdb.Error as error:
            raise self._translated(error) from error

    @contextmanager
    def staging_relation(
        self, staged: StagedFiles, columns: Sequence[StagedColumn]
    ) -> Iterator[StagingRelation]:
        files = ", ".join(map(self.dialect.literal, staged.files))
        source = f"read_parquet([{files}], hive_partitioning = false)"
        yield self.with_staged_names(source, columns, self._column_value)

    def _column_value(self, column: StagedColumn) -> ColumnValue:
        value, target = self.dialect.staged(column.name), column.target.sql_type
        if column.cast_type:
            fitted = f"TRY_CAST(TRY_CAST({value} AS {column.cast_type}) AS {target})"
        elif target == "JSON":
            return ColumnValue(f"CASE WHEN json_valid({value}) THEN {value}::JSON ELSE to_json({value}) END")
        elif target == "TIMESTAMP" and form_of(column.type) is Form.TIME:
            return ColumnValue(f"{value}::TIMESTAMP")
        elif self.takes_as_staged(column):
            return ColumnValue(value)
        else:
            fitted = exact_cast(value, form_of(column.type), target)
        return ColumnValue(
            fitted, f"{value} IS NOT NULL AND {fitted} IS NULL", f"CAST(to_json({value}) AS VARCHAR)"
        )

    def _translated(self, error: duckdb.Error) -> WarehouseError:
        return contract_error(
            self.id,
            error,
            blames_row=isinstance(error, _ROW_ERRORS),
            blames_table=isinstance(error, _TABLE_ERRORS),
        )
