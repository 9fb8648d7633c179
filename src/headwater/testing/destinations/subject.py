"""A destination under test, staged files as the pipeline writes them, and what the tests share."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.destinations.base import Destination, Load, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, Column, Table, table_of

KINDS = [Kind.BOOL, Kind.INT64, Kind.FLOAT64, Kind.STRING, Kind.TIMESTAMP]
ARROW = {
    Kind.BOOL: pa.bool_(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.JSON: pa.string(),
}


class Subject(ABC):
    """A destination under test together with a way to look at its tables."""

    destination: Destination

    @abstractmethod
    def another(self) -> Destination:
        """A second destination on the same database, as another thread would have it; not connected."""

    @abstractmethod
    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows as a reader sees them, newest versions only."""

    @abstractmethod
    def run(self, statement: str) -> None:
        """Execute a statement as a user of the database, without the destination."""

    @abstractmethod
    def unreachable(self) -> Destination:
        """A destination whose database is not there."""

    def close(self) -> None:
        """Release all resources."""
        self.destination.close()


class Suite(ABC):
    """The base of all parts of the suite: the product's SQL, and a fresh subject for each test."""

    small_integer: ClassVar[str] = "smallint"
    """An explicit SQL type that takes 12, and neither 70000 nor `many`."""
    keyed_table: ClassVar[str] = "CREATE TABLE {} (id bigint PRIMARY KEY, note text)"
    """Makes a table with a key that its user created."""
    their_table: ClassVar[str] = ""
    """Makes a table of another program with the same columns; empty: the same table."""
    note_row: ClassVar[str] = "INSERT INTO {} (id, note) VALUES (1, 'theirs')"
    """Inserts a row into that table."""
    view: ClassVar[str] = "CREATE VIEW {} AS SELECT * FROM {}"
    """Makes a view of a table."""
    strict_table: ClassVar[str] = "CREATE TABLE {} (number bigint CHECK (number <> 13), note text)"
    """Makes a table that refuses the number 13."""
    many_rows: ClassVar[int] = 260_000
    """Rows of the largest table of the suite."""

    def bare_type(self, sql_type: str) -> str:
        """The name of a type in `Capabilities`, from the name that the product reports."""
        return sql_type

    def stored(self, name: str) -> str:
        """The name under which the product stores a quoted name."""
        return name

    @abstractmethod
    def make(self, tmp_path: Path) -> Subject:
        """A fresh destination on an empty database."""

    @pytest.fixture
    def subject(self, tmp_path: Path) -> Iterator[Subject]:
        subject = self.make(tmp_path)
        subject.destination.connect()
        yield subject
        subject.close()

    @pytest.fixture
    def staging(self, tmp_path: Path) -> Path:
        folder = tmp_path / "staging"
        folder.mkdir()
        return folder


def staged_load(
    folder: Path,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    id: str | None = None,
    kinds: Mapping[str, Kind] | None = None,
    order: Sequence[int] | None = None,
    first_row: int = 0,
    files: int = 1,
) -> Load:
    """A load of these rows; its files have the columns of `kinds`, else those of the table that a row has.

    `order` gives each row its `_headwater_row`, where it is not its place.
    """
    id = id or uuid.uuid4().hex
    if kinds is None:
        kinds = {
            name: column.kind for name, column in table.columns.items() if any(name in row for row in rows)
        }
    numbers = [first_row + number for number in (order or range(len(rows)))]
    data = {name: pa.array([row.get(name) for row in rows], ARROW[kind]) for name, kind in kinds.items()}
    staged = pa.table({**data, ROW: pa.array(numbers, pa.int64())})
    paths, size = [], -(-len(rows) // files)
    for part in range(files):
        path = folder / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(staged.slice(part * size, size), path)
        paths.append(str(path))
    return Load(id=id, table=table, files=paths, rows=len(rows))


def table(name: str, **kinds: Kind) -> Table:
    return table_of(name, [Column(column, kind) for column, kind in kinds.items()])


def keyed(name: str, **kinds: Kind) -> Table:
    columns = {"k": Kind.STRING, "v": Kind.INT64} | kinds
    return table_of(name, [Column(column, kind) for column, kind in columns.items()], ["k"])


def load(
    subject: Subject, staging: Path, table: Table, rows: Sequence[dict[str, Any]], **options: Any
) -> Loaded:
    return subject.destination.load(staged_load(staging, table, rows, **options))


def by(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """These columns of the rows, values as plain Python ones, sorted with NULL last."""
    found = [tuple(plain(row[name]) for name in names) for row in rows]
    return sorted(
        found, key=lambda row: [(value is None, value if value is not None else 0) for value in row]
    )


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return value


def parsed(value: Any) -> Any:
    """A JSON column, which some clients hand out as text."""
    return json.loads(value) if isinstance(value, str) else value or {}
