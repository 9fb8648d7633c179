"""One pair: the lines of one origin, for one table of one destination, become rows there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from headwater.crash_points import crash_point
from headwater.destinations.base import Destination, Load, Loaded, RefusedRow
from headwater.destinations.column_types import Kind
from headwater.destinations.locks import Locks
from headwater.destinations.table import ROW, UNMAPPED, Column, Table, table_of
from headwater.log.rejects.destination_file import EventError
from headwater.pipeline.lineage_hints import doing, staging_for
from headwater.pipeline.load_report import Times
from headwater.pipeline.steps import mapping
from headwater.pipeline.steps.batch_schema import Scanned, columns_of
from headwater.pipeline.steps.enrich.lookup_join import Joined, Rule, look_up, rules_of
from headwater.pipeline.steps.names import column_name, parse_pointer
from headwater.pipeline.steps.project import Fit, fit, project
from headwater.pipeline.steps.read_lines import REASON, bad_lines, events_of, rejects_of, scan_lines
from headwater.pipeline.steps.stage import Staging, write_rows, write_small
from headwater.settings import DestinationSettings, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Loader", "Origin", "Outcome", "StagedRows", "as_wanted", "count_unmapped", "load_id", "takes"]

EMPTY = "no field of the event becomes a column"
MAX_REFITS = 3
"""Patching is repeated while another pipeline changes the table at the same time."""
RULES_SECONDS = 300.0
"""So long an enrichment rule stays open; then it is opened anew, and with it the file that it reads."""


@dataclass
class Outcome:
    """What became of a pair's lines. `rejects` are read once, and only then is Spark asked for them."""

    events: int
    rows: int
    rejected: int
    unmapped: int
    rejects: list[Iterable[EventError]]


class StagedRows(NamedTuple):
    """Rows on their way to a table that fits them, and how many of their values have no column there."""

    table: Table
    files: list[str]
    unmapped: int


class Origin(Protocol):
    """Where lines come from: a complete file, or a stretch of a queue."""

    @property
    def name(self) -> str:
        """What rejects tell of it."""

    def identity(self) -> str:
        """A text that no other origin has had, and this one always."""


def load_id(file: Origin, destination_id: str, table: str) -> str:
    """The same for the same events, destination and table, whoever tries again and wherever (G5)."""
    text = "\0".join((file.identity(), destination_id, table))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class Loader:
    """All that the pairs of one destination have in common."""

    def __init__(
        self,
        settings: DestinationSettings,
        pipeline: PipelineSettings,
        destination: Destination,
        locks: Locks,
        staging: Staging,
        *,
        browser_key: str = "",
    ) -> None:
        self.settings = settings
        self.destination = destination
        self._pipeline = pipeline
        self._locks = locks
        self._staging = staging
        self._browser_key = browser_key
        self._rules: dict[str, tuple[float, list[Rule]]] = {}
        self.times = Times()
        self.is_small = False
        """Few rows: they are staged by the driver, without Spark's writers."""

    def load(
        self, lines: DataFrame, table: str, file: Origin, now: float, scanned: Scanned | None = None
    ) -> Outcome:
        """Load the lines into the table, unless the ledger knows that they are there.

        `scanned` is what is known of their fields already.
        """
        id = self.load_id(file, table)
        if scanned is None:
            with self.times.of("scan"):
                scanned = scan_lines(lines, self._browser_key)
        with self._staging.folder() as folder:
            # After a crash between load and status: the answer of then, and nothing is staged again.
            if self.destination.loaded([id]):
                empty = Load(id=id, table=Table(table, {}), files=[], rows=0)
                loaded, unmapped = self.destination.load(empty), 0
            elif self.wanted(table, scanned, None)[0].columns:
                loaded, unmapped = self._stage_and_load(id, lines, table, scanned, folder)
            else:
                return self._empty(lines, scanned, file, now)
        rejects = []
        if scanned.bad:
            rejects.append(self._rejects(bad_lines(lines), file, now))
        if loaded.refused:
            rejects.append(self._rejects(_refused_lines(lines, loaded.refused), file, now))
        return Outcome(
            events=scanned.events + scanned.bad,
            rows=loaded.rows,
            rejected=scanned.bad + len(loaded.refused),
            unmapped=unmapped + loaded.unmapped,
            rejects=rejects,
        )

    def load_id(self, file: Origin, table: str) -> str:
        """What the ledger calls the load of these lines into the table."""
        return load_id(file, self.settings.id, table)

    def _stage_and_load(
        self, id: str, lines: DataFrame, table: str, scanned: Scanned, folder: Path
    ) -> tuple[Loaded, int]:
        staged = self.staged(id, lines, table, scanned, folder)
        crash_point("pipeline.before_load")
        with self.times.of("load"):
            loaded = self.destination.load(
                Load(id=id, table=staged.table, files=staged.files, rows=scanned.events)
            )
        crash_point("pipeline.after_load")
        return loaded, staged.unmapped

    def staged(self, id: str, lines: DataFrame, table: str, scanned: Scanned, folder: Path) -> StagedRows:
        """The rows of the lines, on their way to a table that fits them."""
        with self.projected(lines, table, scanned, folder) as (rows, fitted, patched):
            return StagedRows(patched, *self.stage(rows, fitted, folder))

    @contextmanager
    def projected(
        self, lines: DataFrame, table: str, scanned: Scanned, folder: Path
    ) -> Iterator[tuple[DataFrame, Fit, Table]]:
        """The rows of the lines, which are to be staged in the block, and the table made to fit them."""
        events = events_of(lines, scanned)
        key = self._browser_key if scanned.browser else ""
        rules = self.rules(key)
        with self.times.of("enrich"), doing(lines.sparkSession, f"look up values for {table}"):
            joined = self.look_up(events, scanned, rules, folder)
        with self.times.of("patch"):
            fitted, patched = self.patch(table, scanned)
        with self.times.of("stage"), staging_for(lines.sparkSession, self.settings, table):
            yield project(events, fitted, joined), fitted, patched

    def rules(self, browser_key: str) -> list[Rule]:
        """The rules of the destination, opened; with a key, those for browser events too.

        Kept for a while: to open them takes longer than to look up a few values.
        """
        found = self._rules.get(browser_key)
        if found is None or time.monotonic() - found[0] > RULES_SECONDS:
            rules = rules_of(self.settings.enrichment, self._pipeline, browser_key=browser_key)
            found = self._rules[browser_key] = time.monotonic(), rules
        return found[1]

    def look_up(
        self, events: DataFrame, scanned: Scanned, rules: Sequence[Rule], folder: Path
    ) -> list[Joined]:
        """What the rules find, added to what is known of the fields."""
        return look_up(events, scanned.root, rules, self._staging.shared(folder))

    def stage(self, rows: DataFrame, fitted: Fit, folder: Path) -> tuple[list[str], int]:
        """Write the rows as Parquet; the files in their order, and how many values have no column."""
        if self.is_small:
            written = write_small(rows, folder)
            return [str(folder / "rows.parquet")], count_unmapped(written) if fitted.needs_unmapped else 0
        files = write_rows(rows, folder, self._staging.shared(folder))
        return files, sum(map(_count_in_file, files)) if fitted.needs_unmapped else 0

    def patch(self, name: str, scanned: Scanned) -> tuple[Fit, Table]:
        """Make the table fit the batch, and the batch the table (seed 003: table patching)."""
        _, wanted = self.wanted(name, scanned, self.destination.table(name))
        for _ in range(MAX_REFITS):
            with self._locks.hold(self.settings.id, name):
                table = self.destination.patch(wanted)
            fitted, wanted = self.wanted(name, scanned, table)
            if takes(table, fitted):
                break
        return fitted, as_wanted(table, wanted)

    def wanted(self, name: str, scanned: Scanned, existing: Table | None) -> tuple[Fit, Table]:
        """The batch as it would be stored, and the table that this takes."""
        capabilities = self.destination.capabilities
        limit = capabilities.max_identifier_length
        key = tuple(column_name(parse_pointer(column), limit) for column in self.settings.primary_key)
        keep = [parse_pointer(column) for column in self.settings.primary_key if column.startswith("/")]
        leaves = mapping.apply(scanned.root, self.settings.mappings, keep=keep)
        columns = columns_of(leaves, limit)
        fitted = fit(
            scanned.root,
            columns,
            existing,
            capabilities=capabilities,
            max_columns=self.settings.max_columns,
            mapping=self.settings.mappings,
            first=key,
        )
        structure = [column.column for column in fitted.columns.values()]
        if fitted.needs_unmapped:
            structure.append(Column(UNMAPPED, Kind.JSON))
        # A new table cannot have a key of which its first batch has no value; a later batch brings it.
        is_possible = existing is not None or all(column in fitted.columns for column in key)
        return fitted, table_of(name, structure, key if is_possible else ())

    def _empty(self, lines: DataFrame, scanned: Scanned, file: Origin, now: float) -> Outcome:
        """No event of the lines has a field that would be a column: there is nothing to store."""
        rejects = [self._rejects(bad_lines(lines), file, now)] if scanned.bad else []
        if scanned.events:
            reasoned = events_of(lines, scanned).selectExpr("*", f"'{EMPTY}' AS {REASON}")
            rejects.append(self._rejects(reasoned, file, now))
        count = scanned.events + scanned.bad
        return Outcome(events=count, rows=0, rejected=count, unmapped=0, rejects=rejects)

    def _rejects(self, lines: DataFrame, file: Origin, now: float) -> Iterable[EventError]:
        return rejects_of(lines, destination_id=self.settings.id, file=file.name, now=now)


def takes(table: Table, fitted: Fit) -> bool:
    """Whether the table has all columns that the batch needs."""
    return not fitted.new and (UNMAPPED in table.columns or not fitted.needs_unmapped)


def as_wanted(table: Table, wanted: Table) -> Table:
    """The table with the casts that the mapping asks for."""
    columns = {
        column: Column(column, found.kind, found.sql_type, wanted.columns[column].cast_type)
        if column in wanted.columns
        else found
        for column, found in table.columns.items()
    }
    return Table(table.name, columns, table.primary_key, table.users_key)


def _refused_lines(lines: DataFrame, refused: Sequence[RefusedRow]) -> DataFrame:
    reasons = lines.sparkSession.createDataFrame(
        [(each.row, each.reason) for each in refused], f"{ROW} bigint, {REASON} string"
    )
    return lines.join(reasons, ROW)


def count_unmapped(rows: Any) -> int:
    """How many values of the rows, an Arrow table, have no column of their own."""
    texts = rows.column(UNMAPPED).drop_null().to_pylist()
    return sum(len(msgspec.json.decode(text, type=dict[str, msgspec.Raw])) for text in texts)


def _count_in_file(file: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        batches = parquet.iter_batches(columns=[UNMAPPED])
        return sum(count_unmapped(pa.Table.from_batches([batch])) for batch in batches)
