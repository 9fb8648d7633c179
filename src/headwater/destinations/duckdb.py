"""DuckDB: the embedded default, one file and no server.

One process at a time has the file open; a second pipeline gets DestinationUnavailable and tries later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import duckdb
import msgspec
import pyarrow as pa

from headwater.destinations import ledger
from headwater.destinations.base import Capabilities
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import key_name, listed, literal, quoted
from headwater.destinations.sql.transactional import Fit, TransactionalDestination, field, first_line
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import ROW, Column, Patch, Table, check_sql_type
from headwater.errors import DestinationUnavailable, LoadRefused, WarehouseError

__all__ = ["DuckDBDestination", "DuckDBSettings"]

_NATURAL = {
    "VARCHAR": pa.string(),
    "DOUBLE": pa.float64(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
}
_KINDS = {
    "BOOLEAN": Kind.BOOL,
    "TINYINT": Kind.INT64,
    "SMALLINT": Kind.INT64,
    "INTEGER": Kind.INT64,
    "BIGINT": Kind.INT64,
    "UTINYINT": Kind.INT64,
    "USMALLINT": Kind.INT64,
    "UINTEGER": Kind.INT64,
    "FLOAT": Kind.FLOAT64,
    "DOUBLE": Kind.FLOAT64,
    "JSON": Kind.JSON,
}


class DuckDBSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `duckdb`."""

    path: Annotated[str, msgspec.Meta(description="The database file; made if it is not there.")]
    memory_limit: Annotated[
        str, msgspec.Meta(description="Most memory of the engine, such as `2GB`; empty: its own default.")
    ] = ""
    threads: Annotated[int, msgspec.Meta(ge=0, description="Threads of the engine; 0: one per core.")] = 0


class DuckDBDestination(TransactionalDestination):
    """Rows in a DuckDB file."""

    Settings: ClassVar[type[msgspec.Struct]] = DuckDBSettings
    folds_case: ClassVar[bool] = True
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
    )
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
            self._connection = duckdb.connect(str(path), config={k: v for k, v in config.items() if v})
        except (duckdb.Error, OSError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: {path} cannot be opened: {first_line(error)}.",
                hint="If another program has it open, close that; then run again.",
            ) from error
        self.execute("SET TimeZone = 'UTC'")
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {ledger.LEDGER} (load_id VARCHAR PRIMARY KEY, table_name VARCHAR, "
            "row_count BIGINT, unmapped_count BIGINT, refused_count BIGINT, refused_rows VARCHAR, "
            "loaded_at TIMESTAMP DEFAULT current_timestamp)"
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def table(self, name: str) -> Table | None:
        here = f"table_name = {literal(name)} AND schema_name = current_schema() AND NOT internal"
        found = self.execute(
            f"SELECT column_name, data_type FROM duckdb_columns() WHERE {here} "
            "AND database_name = current_database() ORDER BY column_index"
        )
        if not found:
            return None
        indexes = self.execute(
            "SELECT comment FROM duckdb_indexes() WHERE schema_name = current_schema() "
            f"AND database_name = current_database() AND index_name = {literal(key_name(name))}"
        )
        constraints = self.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE schema_name = current_schema() "
            f"AND database_name = current_database() AND table_name = {literal(name)} "
            "AND constraint_type = 'PRIMARY KEY'"
        )
        return Table(
            name,
            {column: Column(column, _kind_of(type), type) for column, type in found},
            tuple(msgspec.json.decode(indexes[0][0], type=list[str])) if indexes else (),
            tuple(constraints[0][0]) if constraints else (),
        )

    def alter(self, table: str, patch: Patch) -> None:
        name, key = quoted(table), quoted(key_name(table))
        columns = [f"{quoted(column.name)} {self.column_type(column)}" for column in patch.add]
        if patch.create:
            self.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        if patch.drop_key:
            self.execute(f"DROP INDEX {key}")
        if not patch.create:
            for column in columns:
                self.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
        if patch.set_key:
            self.execute(f"CREATE UNIQUE INDEX {key} ON {name} ({listed(patch.set_key)})")
            comment = msgspec.json.encode(patch.set_key).decode()
            self.execute(f"COMMENT ON INDEX {key} IS {literal(comment)}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        try:
            return self._connection.execute(statement).fetchall()
        except duckdb.Error as error:
            raise self._translated(error) from error

    @contextmanager
    def stage(self, staged: Staged) -> Iterator[str]:
        yield f"read_parquet([{', '.join(map(literal, staged.files))}], hive_partitioning = false)"

    def fit(self, value: str, staged: pa.DataType, cast: str, column: Column) -> Fit:
        target = column.sql_type
        if not cast and target == "JSON":
            return Fit(f"CASE WHEN json_valid({value}) THEN {value}::JSON ELSE to_json({value}) END")
        if not cast and target == "TIMESTAMP" and pa.types.is_timestamp(staged):
            return Fit(f"{value}::TIMESTAMP")
        if not cast and _NATURAL.get(target) == staged:
            return Fit(value)
        fitted = f"TRY_CAST({f'TRY_CAST({value} AS {check_sql_type(cast)})' if cast else value} AS {target})"
        return Fit(fitted, f"{value} IS NOT NULL AND {fitted} IS NULL")

    def gathered(self, unmapped: str, misfits: dict[str, str]) -> str:
        parts = ", ".join(
            f"CASE WHEN {condition} THEN json_object({literal(name)}, {field(name)}) ELSE '{{}}' END"
            for name, condition in misfits.items()
        )
        either = " OR ".join(f"({condition})" for condition in misfits.values())
        return (
            f"CASE WHEN {either} THEN json_merge_patch(coalesce({unmapped}, '{{}}'), {parts}) "
            f"ELSE {unmapped} END"
        )

    def last(self, column: str) -> str:
        return f"arg_max({column}, base.{quoted(ROW)})"

    def _translated(self, error: duckdb.Error) -> WarehouseError:
        text = f"{first_line(error)}."
        refusals = (duckdb.ConstraintException, duckdb.ConversionException, duckdb.OutOfRangeException)
        if isinstance(error, (*refusals, duckdb.InvalidInputException)):
            return RowsRefused(text)
        if isinstance(error, (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException)):
            return LoadRefused(text, hint="The table may have changed meanwhile: run again.")
        return DestinationUnavailable(f"destination {self.id}: {text}", hint="It is tried again.")


def _kind_of(type: str) -> Kind:
    if type.startswith("DECIMAL"):
        return Kind.FLOAT64
    return Kind.TIMESTAMP if type.startswith("TIMESTAMP") else _KINDS.get(type, Kind.STRING)
