"""The destination contract: what it takes to store rows somewhere.

A destination is a class named by an entry point of the group `headwater.destinations`. What a product can do
is data (`Capabilities`); what it must do is a few methods. They are called by one thread at a time:

    connect    first, and again after DestinationUnavailable; makes the ledger where it is not there
    table      the structure as it is now
    patch      makes a table fit; the caller holds the table's lock
    load       rows and their ledger entry, together or not at all; the same id again does nothing (G5)
    close      may be called twice, and without `connect`

Staged files are Parquet: a column per column of the table that the batch has, under its exact name, as
boolean, int64, double (or decimal(38,18)), string, or timestamp in microseconds UTC; JSON is a string; and
`_headwater_row`, an int64 that orders the rows. A NULL is a field that its event did not have. So an upsert
leaves the stored value alone where the new row has NULL, and the result does not depend on how events were
cut into batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from headwater.destinations.column_types import Kind
from headwater.destinations.table import Table
from headwater.extensions import load
from headwater.settings import DestinationSettings, convert

__all__ = [
    "GROUP",
    "Capabilities",
    "Destination",
    "Load",
    "Loaded",
    "Merge",
    "NoOptions",
    "RefusedRow",
    "Total",
    "destination_class",
    "load_destination",
]

GROUP = "headwater.destinations"


class Merge(StrEnum):
    """When an upsert shows."""

    IMMEDIATE = "immediate"
    """With the load's commit: a table never shows two rows of one key."""
    EVENTUAL = "eventual"
    """The newer row is stored beside the older, which disappears later; queries must ask for the newest."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a product calls things and what it can do."""

    types: dict[Kind, str]
    """SQL type of each kind; arrays are stored as STRING."""
    max_identifier_length: int
    """Bytes of the longest table or column name."""
    max_columns: int
    """Most columns of a table."""
    folds_case: bool
    """Whether names that differ only in case are one name."""
    supports_transactions: bool
    """Whether rows and ledger entry commit together; if not, its docs say what a crash can do (G5)."""
    merge: Merge = Merge.IMMEDIATE
    float_as_decimal: bool = False
    """Whether FLOAT64 should be staged as decimal(38,18)."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Staged rows for one table."""

    id: str
    """The same for the same rows, whoever tries again."""
    table: Table
    """As `patch` returned it."""
    files: list[str]
    """Parquet files, in the order of their rows."""
    rows: int


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that the destination will not take."""

    row: int
    """Its `_headwater_row`."""
    reason: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a load. A repeated load gives the same answer as the first, with `already` set."""

    id: str
    rows: int
    """Rows that were taken."""
    unmapped: int = 0
    """Values that their column's SQL type did not take and that went to `_unmapped_data` instead."""
    refused: tuple[RefusedRow, ...] = ()
    """Rows that were left out, so that the others could land (G6)."""
    already: bool = False


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says about a table."""

    loads: int
    rows: int
    unmapped: int
    refused: int


class NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A destination without settings of its own."""


class Destination(ABC):
    """Stores rows in one database."""

    Settings: ClassVar[type[msgspec.Struct]] = NoOptions
    """The type's own options; each field is documented by a `msgspec.Meta(description=...)`."""

    capabilities: ClassVar[Capabilities]

    max_refused: int = 1_000
    """More refused rows than this in one load are no accident: then none of its rows is taken."""

    def __init__(self, id: str, options: Any) -> None:
        """`options` is an instance of `Settings`. Opens nothing: that is for `connect`."""
        self.id = id
        self.options = options

    def dataset(self, table: str) -> tuple[str, str]:
        """OpenLineage namespace and name of a table, without credentials; needs no connection."""
        return f"headwater://{self.id}", table

    @abstractmethod
    def connect(self) -> None:
        """Open what the other methods need; DestinationUnavailable when it cannot be had now."""

    @abstractmethod
    def close(self) -> None:
        """Give back what `connect` opened."""

    @abstractmethod
    def table(self, name: str) -> Table | None:
        """The structure of a table as it is now, kinds told from SQL types; None if there is none."""

    @abstractmethod
    def patch(self, wanted: Table) -> Table:
        """Create the table, add what it lacks, maintain its key; the structure it has then.

        Never drops a column, nor a key but our own. TableRefused if it cannot be done.
        """

    @abstractmethod
    def load(self, load: Load) -> Loaded:
        """Store the rows, once.

        Upserted by `table.key` where the files have all of its columns, else appended; among rows of one
        key the last wins, column by column. Rows without a whole key are appended. A value that the
        column's SQL type does not take goes to `_unmapped_data`; a row that the destination refuses is set
        aside, and many of them are LoadRefused.
        """

    @abstractmethod
    def loaded(self, ids: Sequence[str]) -> set[str]:
        """Those of the load ids that are in the ledger."""

    def loaded_between(self, low: str, high: str) -> set[str]:
        """Load ids in the ledger from `low` up to and without `high`, by the order of their letters.

        Asked by stream mode, whose ids tell positions, when it begins. A destination that does not tell keeps
        rows exact as long as the stream's cursor is kept.
        """
        return set()

    def totals(self) -> dict[str, Total]:
        """What the ledger says, by table; empty where it is not cheap to tell."""
        return {}


def destination_class(name: str) -> type[Destination]:
    """The class behind a `type` of the settings."""
    what, install = "destination of the type", f"pip install 'headwater[pipeline,{name}]'"
    return load(GROUP, name, Destination, what=what, install=install)  # type: ignore[type-abstract]


def load_destination(settings: DestinationSettings) -> Destination:
    """The destination that the settings describe, not yet connected."""
    kind = destination_class(settings.type)
    options = convert(settings.options, kind.Settings, source=f"destination {settings.id}")
    return kind(settings.id, options)
