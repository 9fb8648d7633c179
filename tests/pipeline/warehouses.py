"""Real databases with a table of numbers and the ledger, of which a copy can be kept and put back."""

from __future__ import annotations

import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.destinations.base import Destination, Load, load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, Column, table_of
from headwater.settings import DestinationSettings
from tests.parts.postgres import PostgresServer

TABLE = table_of("events", [Column("n", Kind.INT64)])


class Warehouse(ABC):
    """A database with the table and the ledger."""

    type = ""

    @abstractmethod
    def options(self) -> dict[str, str]: ...

    @abstractmethod
    def copy(self) -> None:
        """Keep a copy of everything."""

    @abstractmethod
    def restore(self) -> None:
        """Put the copy into its place."""

    @abstractmethod
    def rows(self) -> list[int]: ...

    def connect(self) -> Destination:
        made = load_destination(DestinationSettings(id="dwh", type=self.type, options=self.options()))
        made.connect()
        return made


class DuckDB(Warehouse):
    type = "duckdb"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "dwh.duckdb"
        self._copy = folder / "dwh.copy"

    def options(self) -> dict[str, str]:
        return {"path": str(self._path)}

    def copy(self) -> None:
        shutil.copyfile(self._path, self._copy)

    def restore(self) -> None:
        shutil.copyfile(self._copy, self._path)

    def rows(self) -> list[int]:
        with duckdb.connect(str(self._path)) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM events").fetchall()]


class Postgres(Warehouse):
    type = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._name = f"test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {self._name}")

    def _url(self, database: str) -> str:
        import psycopg

        return psycopg.conninfo.make_conninfo(self._server.url, dbname=database)

    def _execute(self, *work: str, database: str = "") -> list[tuple[int]]:
        import psycopg

        url = self._url(database) if database else self._server.url
        with psycopg.connect(url, autocommit=True) as connection:
            for each in work:
                found = connection.execute(each.encode())
            return found.fetchall() if found.description else []

    def options(self) -> dict[str, str]:
        return {"url": self._url(self._name), "schema": "dwh"}

    def copy(self) -> None:
        self._execute(
            f"DROP DATABASE IF EXISTS {self._name}_copy",
            f"CREATE DATABASE {self._name}_copy TEMPLATE {self._name}",
        )

    def restore(self) -> None:
        self._execute(
            f"DROP DATABASE {self._name}", f"CREATE DATABASE {self._name} TEMPLATE {self._name}_copy"
        )

    def rows(self) -> list[int]:
        return [n for (n,) in self._execute("SELECT n FROM dwh.events", database=self._name)]


def store(destination: Destination, id: str, numbers: Mapping[int, int], folder: Path) -> None:
    """Load the numbers, by row, as the pipeline would, with a file that pyarrow stages."""
    path = folder / "staged.parquet"
    pq.write_table(pa.table({ROW: list(numbers), "n": list(numbers.values())}), path)
    table = destination.patch(TABLE)
    destination.load(Load(id=id, table=table, files=[str(path)], rows=len(numbers)))
