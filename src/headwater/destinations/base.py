"""The destination contract: the class that stores rows in one product.

An entry point of the group `headwater.destinations` names a class. `Capabilities` describe the product; one
thread at a time calls the methods:

    connect    first, and again after DestinationUnavailable; creates the ledger unless it exists
    table      returns the current structure of a table
    patch      makes a table fit; the caller holds the table's lock. A table of another program is refused
    loaded     returns which loads the ledger has
    load       stores rows and their ledger entry, both or neither; a repeated id stores nothing (G5)
    close      may be called twice, and without `connect`

Staged files are Parquet. They have a column for each column of the table that the batch has, under its exact
name, as boolean, int64, double, string, or timestamp in microseconds UTC; JSON is a
string. The int64 column `_headwater_row` orders the rows. NULL stands for a field that the event does not
have. An upsert therefore keeps the stored value where the new row has NULL, and the result does not depend
on how events were cut into batches.

A product with SQL and transactions derives from `sql.sql_destination.SqlDestination`; `duckdb.py` is the
shortest example, and docs/extension-points.md the guide.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

import msgspec

from headwater.destinations.column_types import Kind
from headwater.destinations.table import UNMAPPED, Table
from headwater.errors import TableNotAllowed, TableRefused
from headwater.extensions import load
from headwater.settings import DestinationSettings, convert
from headwater.system.installation import install_command

GROUP = "headwater.destinations"
SOURCE_DIGITS, NUMBER_DIGITS = 32, 16
STREAM_ID_DIGITS = SOURCE_DIGITS + 3 * NUMBER_DIGITS
_STREAM_ID = re.compile("([0-9a-f]{32})([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{16})")


class Merge(StrEnum):
    """When an upsert becomes visible."""

    IMMEDIATE = "immediate"
    """With the load's commit: a table never has two rows of one key."""
    EVENTUAL = "eventual"
    """The newer row is stored beside the older, which is removed later; queries must select the newest."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Types, limits and guarantees of a product."""

    types: dict[Kind, str]
    """SQL type of each kind; arrays are stored as STRING."""
    max_identifier_length: int
    """Maximum size of a table or column name, in bytes."""
    max_columns: int
    """Maximum number of columns of a table."""
    folds_case: bool
    """Whether names that differ only in case are one name."""
    supports_transactions: bool
    """Whether rows and ledger entry commit together; if not, the docs state what a crash can do (G5)."""
    any_letters: bool = False
    """Whether names of columns may have letters of every script; otherwise they are ASCII."""
    reserved_columns: frozenset[str] = frozenset()
    """Names, in lower case, that no column may have: system columns of the product."""
    reserved_prefixes: tuple[str, ...] = ()
    """Beginnings, in lower case, that no name of a column may have."""
    merge: Merge = Merge.IMMEDIATE


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The staged rows of one table."""

    id: str
    """Deterministic: a retry of the same rows has the same id."""
    table: Table
    """The result of `patch`."""
    files: list[str]
    """Parquet files, in the order of their rows."""
    rows: int


class StreamLoadId(NamedTuple):
    """The parts of the id of a stream's load of positions `first` up to and without `end`.

    The id is the digest of the source, `end`, `first` and the digest of the table, all hexadecimal. So ids of
    one source are in the order of their ends, and the positions can be read back from an id, even if the
    cursor of the stream is lost (G5).
    """

    source: str
    end: int
    first: int
    table: str

    def __str__(self) -> str:
        return f"{self.source}{self.end:0{NUMBER_DIGITS}x}{self.first:0{NUMBER_DIGITS}x}{self.table}"


def parse_stream_id(id: str) -> StreamLoadId | None:
    """The parts of a load id; None for the id of another load."""
    found = _STREAM_ID.fullmatch(id)
    if found is None:
        return None
    source, end, first, table = found.groups()
    return StreamLoadId(source, int(end, 16), int(first, 16), table)


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that the destination refuses."""

    row: int
    """Its `_headwater_row`."""
    reason: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load. A repeated load returns the result of the first, with `already` set."""

    id: str
    rows: int
    """Number of rows stored."""
    unmapped: int = 0
    """Number of values that did not fit their column and went to `_unmapped_data`."""
    refused: tuple[RefusedRow, ...] = ()
    """Rows that were left out, so that the others could be stored (G6)."""
    already: bool = False


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a table's ledger entries."""

    loads: int
    rows: int
    unmapped: int
    refused: int


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """The values that moved from `_unmapped_data`, and those that stay there, by name."""

    rows: int = 0
    values: int = 0
    left: dict[str, int] = {}
    widened: dict[str, Kind] = {}
    """Columns that were widened for it, with their kind now."""


class Maintained(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a table that maintenance has joined, and those that it has removed."""

    joined: int = 0
    """Number of small files that became larger ones."""
    written: int = 0
    """Number of these larger ones."""
    expired: int = 0
    """Number of old versions that can no longer be read."""
    removed: int = 0
    """Number of files that no version names any more."""


class NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a destination that has none."""


class Destination(ABC):
    """Base class of destinations."""

    Settings: ClassVar[type[msgspec.Struct]] = NoOptions
    """Options of the type; a `msgspec.Meta(description=...)` documents each field."""

    capabilities: ClassVar[Capabilities]

    max_refused: int = 1_000
    """A load with more refused rows than this is refused as a whole."""
    adopt_tables: tuple[str, ...] = ()
    """Patterns of existing tables that may be written though Headwater did not create them."""

    def __init__(self, id: str, options: Any) -> None:
        """`options` is an instance of `Settings`. Opens no connection."""
        self.id = id
        self.options = options

    def dataset(self, table: str) -> tuple[str, str]:
        """OpenLineage namespace and name of a table, without credentials; needs no connection."""
        return f"headwater://{self.id}", table

    def other_names(self, table: str) -> list[tuple[str, str]]:
        """Other OpenLineage names of the same table, such as that in a catalog; needs no connection."""
        return []

    @abstractmethod
    def connect(self) -> None:
        """Open the connection; DestinationUnavailable if that fails."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def table(self, name: str) -> Table | None:
        """The current structure of a table, with kinds derived from SQL types; None if it does not exist.

        TableNotAllowed for a view, which is never written.
        """

    @abstractmethod
    def patch(self, wanted: Table) -> Table:
        """Create the table or add missing columns, maintain its key, and return its structure.

        Never drops a column, and no key except one that Headwater created. TableRefused if that fails;
        TableNotAllowed for a table that Headwater neither created nor adopts (`adopts`, `not_ours`), and for
        names of its own tables. What a product records about its tables lies where the ledger lies.
        """

    @abstractmethod
    def load(self, load: Load) -> Loaded:
        """Store the rows once.

        Rows are upserted by `table.key` if the files have all of its columns, otherwise appended; among rows
        of one key the last value of each column wins. Rows that lack a part of the key are appended. A value
        that does not fit its column goes to `_unmapped_data`. A refused row is left out and returned;
        LoadRefused if there are more than `max_refused`.
        """

    @abstractmethod
    def loaded(self, ids: Sequence[str]) -> set[str]:
        """The load ids that are in the ledger."""

    def loaded_in(self, table: str, ids: Sequence[str]) -> set[str]:
        """Those of the ids of loads into one table that are in the ledger, where each table has its own."""
        return self.loaded(ids)

    def loaded_between(self, low: str, high: str) -> set[str]:
        """The load ids in the ledger from `low` up to and without `high`, in lexicographic order.

        Stream mode, whose ids contain positions, calls it at the start. If a destination does not implement
        it, rows are stored exactly once for as long as the stream's cursor is kept.
        """
        return set()

    def fold_ledger(self, days: int) -> int:
        """Make one entry of those of a stream that adjoin and are older; return how many there are fewer.

        The ledger has the same positions afterwards. Streams call it once a day.
        """
        return 0

    def tables_created_since(self, seconds: int) -> int:
        """The number of tables that Headwater has created since a Unix time; 0 if that is not recorded."""
        return 0

    def adopts(self, name: str) -> bool:
        """Whether `adopt_tables` names an existing table."""
        return any(fnmatchcase(name, pattern) for pattern in self.adopt_tables)

    def foreign_table_error(self, name: str) -> TableNotAllowed:
        """The error for a table that exists, and that Headwater must not write."""
        return TableNotAllowed(
            f"destination {self.id}: the table {name!r} exists, and Headwater did not create it.",
            hint=f"To write to it, set `adopt_tables: [{name}]` at the destination; then replay its rejects.",
        )

    def view_error(self, name: str) -> TableNotAllowed:
        """The error for a name that is a view's: a row written to it would change tables behind it."""
        return TableNotAllowed(
            f"destination {self.id}: {name!r} is a view, and views are never written.",
            hint="Change `table_name_template`, or drop the view; then replay its rejects.",
        )

    def widen(self, name: str, kinds: Mapping[str, Kind], *, max_rows: int) -> Table:
        """Give columns of a table a wider kind, keep all their values, and return its structure.

        The caller holds the table's lock. TableRefused, with nothing changed, where the product cannot do so,
        a value would change, or the table has more than `max_rows` rows.
        """
        raise TableRefused(f"destination {self.id}: columns of this type of destination cannot be widened.")

    def heal(self, name: str, *, widen: bool, max_rows: int) -> Healed:
        """Move the values of `_unmapped_data` that fit their column now, in one transaction.

        With `widen` columns are widened first, so that all values fit. The caller holds the table's lock.
        """
        raise TableRefused(
            f"destination {self.id}: this type of destination cannot move values out of `{UNMAPPED}`."
        )

    def maintained_tables(self) -> list[str]:
        """The tables whose files `maintain` looks after; none where the product does so itself."""
        return []

    def maintain(self, name: str, *, keep_seconds: float) -> Maintained:
        """Join small files, expire versions and remove files that none names, beside running loads.

        What is younger than `keep_seconds` stays: a load under way has such files.
        """
        return Maintained()

    def version(self, table: str) -> str:
        """The version of a table's rows, where the product keeps versions; else empty."""
        return ""

    def totals(self) -> dict[str, Total]:
        """Sums of the ledger by table; empty if they are expensive."""
        return {}


def destination_class(name: str) -> type[Destination]:
    """The class that a `type` of the settings names."""
    what, install = "destination of the type", install_command("pipeline", name)
    return load(GROUP, name, Destination, what=what, install=install)  # type: ignore[type-abstract]


def load_destination(settings: DestinationSettings) -> Destination:
    """The destination that the settings describe, not yet connected."""
    kind = destination_class(settings.type)
    options = convert(settings.options, kind.Settings, source=f"destination {settings.id}")
    made = kind(settings.id, options)
    made.adopt_tables = settings.adopt_tables
    return made
