"""The destination for open table formats: the commit of a load's files also enters the load (G5).

A format implements two classes: `LakeDestination` opens and creates tables, and `LakeTable` is one table at
one version, with the loads that are in it. In the order of `load`:

    open       the newest version of the table
    entry      the load is in this version: return its entry
    rows       staged rows in the columns of the table; values that do not fit go to `_unmapped_data`
    commit     append or upsert, on the very version that was asked for the entry. If another program has
               committed meanwhile, nothing is stored, and the load begins again: so of two pipelines with the
               same load one stores it, and the other finds its entry
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from headwater.destinations.base import Destination, Load, Loaded, Maintained, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.lake.partitions import PartitionField
from headwater.destinations.lake.rows import Dialect, LakeRows, RowEngine, TargetColumn
from headwater.destinations.refused_rows import RowSelection, RowsRefused, find_refused_rows
from headwater.destinations.sql.dialect import ASCII_LOWER
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import UNMAPPED, Column, Patch, Table, check_names, check_sql_type, diff
from headwater.errors import DestinationUnavailable, LoadRefused, TableRefused
from headwater.system.crash_points import crash_point

COMMIT_TRIES = 20
MIN_KEEP_SECONDS = 3600.0
"""Files of a load under way are in no version yet, and no load takes as long."""
_PAUSE_SECONDS = 0.05
_PLAIN_NAME = re.compile("[a-z0-9_][a-z0-9_.-]*")


class CommitConflict(Exception):
    """Another program has committed to the table since this version of it was read. Nothing is stored."""


class LakeTable(ABC):
    """A table at one version."""

    structure: Table
    is_ours: bool
    """Whether Headwater created it."""
    created_seconds: int
    """The Unix time at which Headwater created it."""
    version: str
    """How the format names this version: with it readers ask for these rows."""

    @abstractmethod
    def entry(self, id: str) -> Loaded | None:
        """The entry of a load that this version contains."""

    @abstractmethod
    def loads_between(self, low: str, high: str) -> set[str]:
        """Ids of the loads in this version. Adjoining loads of a stream may be one id."""

    @abstractmethod
    def total(self) -> Total:
        """Sums of the entries."""

    @abstractmethod
    def change(self, patch: Patch) -> None:
        """Adds columns and sets the key; CommitConflict if this is no longer the newest version."""

    @abstractmethod
    def append(self, rows: pa.RecordBatchReader, loaded: Loaded) -> None:
        """Commits rows and entry; CommitConflict, or RowsRefused where a row breaks a rule."""

    @abstractmethod
    def upsert(self, rows: pa.RecordBatchReader, key: Sequence[str], loaded: Loaded) -> None:
        """Like `append`; a row replaces the row of its key, and NULL keeps the stored value."""

    @abstractmethod
    def enter(self, loaded: Loaded) -> None:
        """Commits the entry of a load without rows."""

    @abstractmethod
    def join_files(self) -> tuple[int, int]:
        """Makes large files of small ones; the numbers of both. CommitConflict if a row changed meanwhile."""

    @abstractmethod
    def remove_old(self, keep_seconds: float) -> tuple[int, int]:
        """Removes versions, and files that none names; the numbers of both."""

    def refusal(self, rows: pa.RecordBatchReader) -> str | None:
        """Why the table refuses some of the rows, or None; nothing is stored."""
        return None


class LakeDestination(Destination):
    """Stores rows as files of a table format."""

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._engine: RowEngine | None = None
        self.partitions: tuple[PartitionField, ...] = ()
        self.sort_by: tuple[str, ...] = ()

    # --- what a format implements

    @abstractmethod
    def open(self, name: str) -> LakeTable | None:
        """The newest version of a table; None if it does not exist."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all tables."""

    @abstractmethod
    def create(self, wanted: Table, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Creates a table as Headwater's; CommitConflict if it exists."""

    @abstractmethod
    def engine_type(self, sql_type: str) -> str:
        """DuckDB's name of a type of the format or of the mapping; empty if it is not a plain one."""

    # --- the contract

    @property
    def engine(self) -> RowEngine:
        if self._engine is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        return self._engine

    def connect(self) -> None:
        if self._engine is None:
            self.prepare()
            self._engine = RowEngine()

    def prepare(self) -> None:
        """Makes the place of the tables, or checks it; DestinationUnavailable if that fails."""

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def table(self, name: str) -> Table | None:
        found = self._open(name)
        return found.structure if found is not None else None

    def patch(self, wanted: Table) -> Table:
        check_names(wanted, self.capabilities.max_identifier_length)
        for _ in self._tries(f"the table {wanted.name!r} cannot be changed"):
            existing = self._open(wanted.name)
            if existing is not None:
                self._check_ours(existing, wanted.name)
            have = existing.structure if existing is not None else None
            patch = diff(have, wanted, folds_case=self.capabilities.folds_case)
            if have is not None and not patch:
                return have
            columns = [self._with_type(column) for column in patch.add]
            try:
                if existing is None:
                    self.create(wanted, columns, patch.set_key)
                else:
                    existing.change(msgspec.structs.replace(patch, add=tuple(columns)))
            except CommitConflict:
                continue
            break
        changed = self.table(wanted.name)
        if changed is None:
            raise DestinationUnavailable(f"destination {self.id}: {wanted.name!r} is gone after its patch.")
        return changed

    def load(self, load: Load) -> Loaded:
        staged: StagedFiles | None = None
        for _ in self._tries(f"the load {load.id} cannot be committed"):
            table = self._open(load.table.name)
            if table is not None and (done := table.entry(load.id)) is not None:
                return msgspec.structs.replace(done, already=True)
            staged = staged or StagedFiles(load.files)
            if table is None:
                raise LoadRefused(
                    f"the table {load.table.name!r} does not exist.",
                    hint="Run again: it is created before each load.",
                )
            self._check_ours(table, load.table.name)
            try:
                return self._store(load, table, staged)
            except CommitConflict:
                continue
            except LoadRefused:
                staged.check()
                raise
        raise AssertionError("the last try raises")

    def loaded(self, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for name in self.names() if ids else ():
            found |= self.loaded_in(name, [id for id in ids if id not in found])
        return found

    def loaded_in(self, table: str, ids: Sequence[str]) -> set[str]:
        opened = self._open(table)
        return {id for id in ids if opened.entry(id) is not None} if opened is not None else set()

    def loaded_between(self, low: str, high: str) -> set[str]:
        return {id for table in self._all() for id in table.loads_between(low, high)}

    def totals(self) -> dict[str, Total]:
        found = {table.structure.name: table.total() for table in self._all()}
        return {name: total for name, total in found.items() if total.loads}

    def tables_created_since(self, seconds: int) -> int:
        return sum(1 for table in self._all() if table.is_ours and table.created_seconds >= seconds)

    def version(self, table: str) -> str:
        opened = self._open(table)
        return opened.version if opened is not None else ""

    def maintained_tables(self) -> list[str]:
        return [table.structure.name for table in self._all() if self._is_maintained(table)]

    def maintain(self, name: str, *, keep_seconds: float) -> Maintained:
        for _ in self._tries(f"the files of {name!r} cannot be joined"):
            table = self._open(name)
            if table is None:
                raise TableRefused(f"the table {name!r} does not exist.", hint="Check its name.")
            if not self._is_maintained(table):
                raise self.foreign_table_error(name)
            try:
                joined, written = table.join_files()
            except CommitConflict:
                continue
            break
        for _ in self._tries(f"old versions of {name!r} cannot be removed"):
            table = self._open(name)
            if table is None:
                break
            try:
                expired, removed = table.remove_old(max(keep_seconds, MIN_KEEP_SECONDS))
            except CommitConflict:
                continue
            return Maintained(joined=joined, written=written, expired=expired, removed=removed)
        return Maintained(joined=joined, written=written)

    def _is_maintained(self, table: LakeTable) -> bool:
        return table.is_ours or self.adopts(table.structure.name)

    # --- a load

    def _store(self, load: Load, table: LakeTable, staged: StagedFiles) -> Loaded:
        rows = self._rows(load, table, staged)
        everything = RowSelection()
        unmapped = rows.count_not_fitting(everything)
        if unmapped and UNMAPPED not in table.structure.columns:
            # before the load: a crash in between leaves a column without values
            columns = {**table.structure.columns, UNMAPPED: Column(UNMAPPED, Kind.JSON)}
            self.patch(Table(load.table.name, columns, table.structure.primary_key))
            raise CommitConflict
        loaded = Loaded(id=load.id, rows=staged.rows, unmapped=unmapped)
        try:
            return self._commit(table, rows, everything, loaded)
        except RowsRefused:
            staged.check()
            refused = find_refused_rows(
                staged.row_ids(), lambda selection: table.refusal(rows.appended(selection)), self.max_refused
            )
            if not refused:
                raise
        selection = RowSelection(without=tuple(each.row for each in refused))
        loaded = Loaded(
            id=load.id,
            rows=staged.rows - len(refused),
            unmapped=rows.count_not_fitting(selection),
            refused=refused,
        )
        return self._commit(table, rows, selection, loaded)

    def _commit(self, table: LakeTable, rows: LakeRows, selection: RowSelection, loaded: Loaded) -> Loaded:
        if not loaded.rows:
            table.enter(loaded)
        elif rows.key:
            table.upsert(rows.latest(selection), rows.key, loaded)
        else:
            table.append(rows.appended(selection, sort_by=self.sort_by), loaded)
        crash_point("load.after_commit")
        return loaded

    def _rows(self, load: Load, table: LakeTable, staged: StagedFiles) -> LakeRows:
        """The staged rows in the columns of the table."""
        by_name = {self.folded(name): name for name in table.structure.columns}
        sources: dict[str, str] = {}
        for name in staged.columns:
            target = by_name.get(self.folded(name))
            if target is None:
                raise LoadRefused(
                    f"the table {load.table.name!r} has no column {name!r}.",
                    hint="Run again: missing columns are added before each load.",
                )
            if target in sources:
                raise LoadRefused(f"two staged columns are the same column of the table {load.table.name!r}.")
            sources[target] = name
        columns = [self._target(load, column, sources) for column in table.structure.columns.values()]
        return self.engine.rows(staged, columns, table.structure.key)

    def _target(self, load: Load, column: Column, sources: dict[str, str]) -> TargetColumn:
        source = sources.get(column.name, "")
        cast = load.table.columns.get(source, column).cast_type
        derived = next(
            (each for each in self.partitions if each.transform and each.name == column.name), None
        )
        return TargetColumn(
            column.name,
            self.engine_type(column.sql_type),
            source,
            self.engine_type(check_sql_type(cast)) if cast else "",
            derived.sql(Dialect(), sources.get(derived.column)) if derived is not None else "",
        )

    # --- tables

    def folded(self, name: str) -> str:
        """A name as it is compared with others."""
        return name.translate(ASCII_LOWER) if self.capabilities.folds_case else name

    def folder_name(self, name: str) -> str:
        """The folder of a table: its name, in lower case; with a digest if a path could read it otherwise."""
        folded = self.folded(name)
        if _PLAIN_NAME.fullmatch(folded) and ".." not in folded:
            return folded
        digest = hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{re.sub('[^a-z0-9_]', '_', folded)}_{digest}"

    def partition_columns(self, columns: Sequence[Column]) -> list[Column]:
        """The columns of `partition_by` that a new table needs beside its own."""
        have = {self.folded(column.name) for column in columns}
        return [
            Column(each.name, Kind.STRING, "date" if each.transform not in ("", "hours") else "")
            for each in self.partitions
            if self.folded(each.name) not in have
        ]

    def _with_type(self, column: Column) -> Column:
        """A new column with its type in the format."""
        type = check_sql_type(column.sql_type) if column.sql_type else self.capabilities.types[column.kind]
        return msgspec.structs.replace(column, sql_type=type)

    def _open(self, name: str) -> LakeTable | None:
        assert self.engine
        return self.open(name)

    def _all(self) -> Iterator[LakeTable]:
        for name in self.names():
            if (table := self._open(name)) is not None:
                yield table

    def _check_ours(self, table: LakeTable, name: str) -> None:
        """TableNotAllowed for a table of another program (G12)."""
        if not table.is_ours and not self.adopts(name):
            raise self.foreign_table_error(name)

    def _tries(self, text: str) -> Iterator[int]:
        """Numbers of tries, with pauses that grow; DestinationUnavailable after the last."""
        for number in range(COMMIT_TRIES):
            yield number
            time.sleep(random.uniform(0, _PAUSE_SECONDS * min(number + 1, 10)))
        raise DestinationUnavailable(
            f"destination {self.id}: {text}: other programs commit to the table all the time.",
            hint="The load is retried.",
        )
