"""A destination under test, and the small things that its tests share."""

from __future__ import annotations

import datetime as dt
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headwater.destinations.base import Destination, Loaded
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, Table, table_of
from headwater.testing.destinations.staging import staged_load

KINDS = [Kind.BOOL, Kind.INT64, Kind.FLOAT64, Kind.STRING, Kind.TIMESTAMP]


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
        """Do something as the database's user would, behind the destination's back."""

    @abstractmethod
    def unreachable(self) -> Destination:
        """A destination whose database is not there."""

    def close(self) -> None:
        """Give everything back."""
        self.destination.close()


class Suite(ABC):
    """What all parts of the suite have: the product's own words, and a fresh subject for each test."""

    small_integer: ClassVar[str] = "smallint"
    """An explicit SQL type that takes 12, and neither 70000 nor `many`."""
    keyed_table: ClassVar[str] = "CREATE TABLE {} (id bigint PRIMARY KEY, note text)"
    """Makes a table that its user gave a key of his own."""
    strict_table: ClassVar[str] = "CREATE TABLE {} (number bigint CHECK (number <> 13), note text)"
    """Makes a table that refuses the number 13."""
    many_rows: ClassVar[int] = 260_000
    """Rows of the largest table of the suite."""

    def bare_type(self, sql_type: str) -> str:
        """The type as `Capabilities` call it, of what the product says when asked."""
        return sql_type

    def stored(self, name: str) -> str:
        """What the product makes of a name that is written with quotes."""
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
