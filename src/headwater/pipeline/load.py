"""Loads a batch into a table of a destination: the steps that batch and stream mode share.

Start reading at `Loader.load`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headwater.destinations.base import Destination, Load, RefusedRow
from headwater.destinations.table import ROW, Table
from headwater.errors import DestinationUnavailable, HeadwaterError, TableBusy, TableNotAllowed
from headwater.pipeline.lineage_hints import job_description, writing_to
from headwater.pipeline.load_report import Outcome, Times
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.batch_schema import BatchColumn
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.enrich.lookup_join import Lookups, LookupTable
from headwater.pipeline.steps.field_tree import BatchFields
from headwater.pipeline.steps.fit_table import TableFit, TablePatcher, wanted_columns
from headwater.pipeline.steps.parse_events import (
    FieldCollector,
    events_only,
    find_fields,
    malformed_lines,
    sample_fields,
)
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import REASON
from headwater.pipeline.steps.stage import StagedRows, Stager
from headwater.settings import DestinationSettings
from headwater.system.crash_points import crash_point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

NO_COLUMN = "no field of the event becomes a column"


class LoadOrigin(Protocol):
    """The origin of lines: a complete file, or a range of positions. It has its own entry in the ledger."""

    @property
    def name(self) -> str:
        """The name that rejects have as their source."""

    def load_id(self, table: str) -> str:
        """The id of the load into a table; the same for the same events whenever it is repeated (G5)."""

    def record(self, table: str, outcome: Outcome) -> None:
        """Records that the table has the events."""

    def record_failure(self, table: str, error: Exception) -> None:
        """Records why the table does not have them, or raises the error."""


@dataclass(frozen=True)
class BatchPart:
    """The lines of one origin. `fields` are the fields of these lines alone; None: those of the batch."""

    origin: LoadOrigin
    lines: DataFrame
    fields: BatchFields | None = None


@dataclass(frozen=True)
class Batch:
    """Lines that the route step found for one table; they are parsed and staged once for all its parts."""

    table: str
    lines: DataFrame
    parts: Mapping[int, BatchPart]
    fields: BatchFields | None = None
    """The fields of the lines, if the route step found them in the same pass."""


def load_id(identity: str, destination_id: str, table: str) -> str:
    """Deterministic id of a load; retries on any machine produce the same id (G5)."""
    text = "\0".join((identity, destination_id, table))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class RowsMissing(HeadwaterError):
    """Another number of rows was staged than events were counted: nothing is loaded, so that none is lost."""

    retryable = True

    def __init__(self, name: str, events: int, rows: int) -> None:
        super().__init__(
            f"{name}: {events:,} events were counted, but {rows:,} rows staged; nothing of it is loaded.",
            hint="They are tried again. If this stays, `headwater log verify` shows damage of the file.",
        )


@dataclass(frozen=True)
class StagedBySample:
    """Rows that were staged as a sample says, and the fields that the pass found in all lines."""

    fields: BatchFields
    fit: TableFit
    has_unmapped: bool
    staged: StagedRows
    lookups: list[LookupTable]
    rules: list[int]
    """The rules of the lookups that the sample has a source for."""

    def serves(self, fit: TableFit) -> bool:
        """Whether the rows are those that all lines would give."""
        return self.fit.has_same_rows(fit) and (self.has_unmapped or not fit.needs_unmapped)


@dataclass
class Loader:
    """Loads batches into one destination."""

    settings: DestinationSettings
    destination: Destination
    lookups: Lookups
    tables: TablePatcher
    stager: Stager
    staging: Staging
    rejects: RejectWriter
    times: Times = field(default_factory=Times)

    def load(self, batch: Batch) -> None:
        """Runs the steps after routing: parse, enrich, map, type, patch, stage, load, record.

        An error before the load step concerns all parts and is raised, and so is the error of a destination
        or table that cannot be used now. Another error of one part is recorded for that part, and the others
        are loaded. Events of a table that must not be written are rejects.
        """
        table, lines = batch.table, batch.lines  # 1 route: done before the call, by Router
        in_ledger = self._parts_in_ledger(batch)
        with self.staging.folder() as folder, self.staging.folder() as again:
            first = None
            if batch.fields is None and self.stager.is_for_many and not in_ledger:
                first = self._stage_by_sample(table, lines, folder)
            fields = first.fields if first is not None else batch.fields
            if fields is None:
                with self.times.of("parse"):
                    fields = find_fields(lines, self.lookups.browser_keys)  # 2 parse
            patched, staged, refusal = Table(table, {}), dict[int, StagedRows](), NO_COLUMN
            if len(in_ledger) < len(batch.parts) and self._columns(fields):
                if first is not None and first.rules == self.lookups.usable(fields):
                    lookups = first.lookups
                    self.lookups.add_fields(fields, lookups)
                else:
                    first = None
                    with self.times.of("enrich"), job_description(lines.sparkSession, f"look up for {table}"):
                        lookups = self.lookups.find(lines, fields, again)  # 3 enrich
                columns = self._columns(fields)  # 4 map, 5 type
                try:
                    with self.times.of("patch"):
                        fit, patched = self.tables.patch(table, fields.root, columns)  # 6 patch
                except TableNotAllowed as error:
                    logger.error("%s/%s: %s", self.settings.id, table, error)
                    refusal = str(error)
                else:
                    if first is not None and first.serves(fit):
                        staged = {0: first.staged}
                    else:
                        staged = self._stage(self._project(lines, fit, lookups), table, again)  # 7 stage
            for number, part in batch.parts.items():
                own = part.fields or fields
                try:
                    if number in in_ledger:
                        outcome = self._load_part(part, own, patched, None)
                    elif number in staged and self._columns(own):
                        outcome = self._load_part(part, own, patched, staged[number])  # 8 load
                        outcome.without_room = fit.without_room
                    else:
                        outcome = self._reject_part(part, own, refusal)
                except (DestinationUnavailable, TableBusy):
                    raise
                except Exception as error:
                    part.origin.record_failure(table, error)
                else:
                    part.origin.record(table, outcome)  # 9 record

    def _stage_by_sample(self, table: str, lines: DataFrame, folder: Path) -> StagedBySample | None:
        """Stages the rows as the fields of a few lines say, and collects those of all lines on the way.

        Changes nothing at the destination. None if the sample has no fields.
        """
        keys = self.lookups.browser_keys
        with self.times.of("parse"):
            sample = sample_fields(lines, keys)
        if not self._columns(sample):
            return None
        rules = self.lookups.usable(sample)
        with self.times.of("enrich"), job_description(lines.sparkSession, f"look up for {table}"):
            lookups = self.lookups.find(lines, sample, folder)
        fit, has_unmapped = self.tables.plan(table, sample.root, self._columns(sample))
        collector = FieldCollector(lines, keys)
        rows = self._project(lines, fit, lookups, with_unmapped=has_unmapped, collector=collector)
        staged = self._stage(rows, table, folder).get(0)
        if staged is None:
            return None
        fields = collector.fields()
        if fields.malformed or fields.events != staged.rows:
            # also where a task ran twice; the fields stay those that the pass found
            counted = find_fields(lines)
            fields.events, fields.malformed = counted.events, counted.malformed
        return StagedBySample(fields, fit, fit.needs_unmapped or has_unmapped, staged, lookups, rules)

    def _project(
        self,
        lines: DataFrame,
        fit: TableFit,
        lookups: Sequence[LookupTable],
        *,
        with_unmapped: bool = False,
        collector: FieldCollector | None = None,
    ) -> DataFrame:
        return project(
            lines,
            fit,
            lookups,
            text_numbers=self.settings.text_numbers,
            with_unmapped=with_unmapped,
            collector=collector,
        )

    def _stage(self, rows: DataFrame, table: str, folder: Path) -> dict[int, StagedRows]:
        with self.times.of("stage"), writing_to(rows.sparkSession, self.destination, table):
            return self.stager.stage(rows, folder)

    def _parts_in_ledger(self, batch: Batch) -> set[int]:
        """The parts that are loaded already, after a crash between load and record."""
        ids = {number: part.origin.load_id(batch.table) for number, part in batch.parts.items()}
        loaded = self.destination.loaded_in(batch.table, list(ids.values()))
        return {number for number, id in ids.items() if id in loaded}

    def _columns(self, fields: BatchFields) -> dict[str, BatchColumn]:
        return wanted_columns(fields.root, self.settings, self.destination.capabilities)

    def _load_part(
        self, part: BatchPart, fields: BatchFields, table: Table, staged: StagedRows | None
    ) -> Outcome:
        """Loads staged rows. `staged` is None for a part that is in the ledger: the destination then stores
        nothing and returns what it recorded the first time.
        """
        if staged is not None:
            if staged.rows != fields.events:
                raise RowsMissing(part.origin.name, fields.events, staged.rows)
            crash_point("pipeline.before_load")
        files, rows = (staged.files, fields.events) if staged is not None else ([], 0)
        id = part.origin.load_id(table.name)
        with self.times.of("load"):
            loaded = self.destination.load(Load(id=id, table=table, files=files, rows=rows))
        if staged is not None:
            crash_point("pipeline.after_load")
        if fields.malformed:
            self.rejects.write(malformed_lines(part.lines), part.origin.name)
        if loaded.refused:
            self.rejects.write(_refused_lines(part.lines, loaded.refused), part.origin.name)
        return Outcome(
            rows=loaded.rows,
            rejected=fields.malformed + len(loaded.refused),
            unmapped=loaded.unmapped + (staged.unmapped if staged is not None else 0),
        )

    def _reject_part(self, part: BatchPart, fields: BatchFields, reason: str) -> Outcome:
        """Rejects all lines: no event has a field that becomes a column, or the table is not allowed."""
        if fields.malformed:
            self.rejects.write(malformed_lines(part.lines), part.origin.name)
        if fields.events:
            events = events_only(part.lines, fields).selectExpr("*", f"{literal(reason)} AS {REASON}")
            self.rejects.write(events, part.origin.name)
        return Outcome(rejected=fields.events + fields.malformed)


def _refused_lines(lines: DataFrame, refused: Sequence[RefusedRow]) -> DataFrame:
    reasons = lines.sparkSession.createDataFrame(
        [(each.row, each.reason) for each in refused], f"{ROW} bigint, {REASON} string"
    )
    return lines.join(reasons, ROW)
