"""Loads a batch into a table of a destination: the steps that batch and stream mode share.

Start reading at `Loader.load`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.crash_points import crash_point
from headwater.destinations.base import Destination, Load, RefusedRow
from headwater.destinations.table import ROW, Table
from headwater.errors import DestinationUnavailable
from headwater.pipeline.lineage_hints import job_description, writing_to
from headwater.pipeline.load_report import Outcome, Times
from headwater.pipeline.rejects import RejectWriter
from headwater.pipeline.steps.batch_schema import batch_columns
from headwater.pipeline.steps.enrich.lookup_join import Lookups
from headwater.pipeline.steps.field_tree import BatchFields, parse_pointer
from headwater.pipeline.steps.fit_table import PatchedTables, wanted_columns
from headwater.pipeline.steps.mapping import map_fields
from headwater.pipeline.steps.parse_events import events_only, find_fields, malformed_lines
from headwater.pipeline.steps.project import project
from headwater.pipeline.steps.read_lines import REASON
from headwater.pipeline.steps.stage import StagedRows, Stager, Staging
from headwater.settings import DestinationSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """The fields of the lines, where the route step found them in the same pass."""


def load_id(identity: str, destination_id: str, table: str) -> str:
    """Deterministic id of a load; retries on any machine produce the same id (G5)."""
    text = "\0".join((identity, destination_id, table))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class Loader:
    """Loads batches into one destination."""

    def __init__(
        self,
        settings: DestinationSettings,
        destination: Destination,
        *,
        lookups: Lookups,
        tables: PatchedTables,
        stager: Stager,
        staging: Staging,
        rejects: RejectWriter,
        browser_keys: str = "",
        times: Times | None = None,
    ) -> None:
        self._settings = settings
        self._destination = destination
        self._lookups = lookups
        self._tables = tables
        self._stager = stager
        self._staging = staging
        self._rejects = rejects
        self._browser_keys = browser_keys
        self._times = times or Times()

    def load(self, batch: Batch) -> None:
        """Runs the steps for a batch: route, parse, enrich, map, type, patch, stage, load, record.

        An error before the load step concerns all parts and is raised, and so is an unreachable destination.
        Another error of one part is recorded for that part, and the others are loaded.
        """
        table, lines = batch.table, batch.lines  # 1 route: a batch has the lines of one table (see Router)
        in_ledger = self._parts_in_ledger(batch)
        with self._staging.folder() as folder:
            with self._times.of("scan"):
                fields = batch.fields or find_fields(lines, self._browser_keys)  # 2 parse
            events = events_only(lines, fields)
            patched, staged = Table(table, {}), dict[int, StagedRows]()
            if len(in_ledger) < len(batch.parts) and self._has_columns(fields):
                with self._times.of("enrich"), job_description(lines.sparkSession, f"look up for {table}"):
                    lookups = self._lookups.find(events, fields, folder)  # 3 enrich
                mapped = map_fields(fields.root, self._settings.mappings, keep=self._key_paths())  # 4 map
                columns = batch_columns(mapped, self._max_identifier_length)  # 5 type
                with self._times.of("patch"):
                    fit, patched = self._tables.patch(table, fields.root, columns)  # 6 patch
                with self._times.of("stage"), writing_to(lines.sparkSession, self._destination, table):
                    staged = self._stager.stage(project(events, fit, lookups), folder)  # 7 stage
            for number, part in batch.parts.items():
                own = part.fields or fields
                try:
                    if number in in_ledger:
                        outcome = self._load_part(part, own, patched, None)
                    elif number in staged and self._has_columns(own):
                        outcome = self._load_part(part, own, patched, staged[number])  # 8 load
                    else:
                        outcome = self._reject_part(part, own)
                except DestinationUnavailable:
                    raise
                except Exception as error:
                    part.origin.record_failure(table, error)
                else:
                    part.origin.record(table, outcome)  # 9 record

    def _parts_in_ledger(self, batch: Batch) -> set[int]:
        """The parts that are loaded already, after a crash between load and record."""
        ids = {number: part.origin.load_id(batch.table) for number, part in batch.parts.items()}
        loaded = self._destination.loaded(list(ids.values()))
        return {number for number, id in ids.items() if id in loaded}

    def _has_columns(self, fields: BatchFields) -> bool:
        return bool(wanted_columns(fields.root, self._settings, self._destination.capabilities))

    def _key_paths(self) -> list[tuple[str, ...]]:
        return [parse_pointer(column) for column in self._settings.primary_key if column.startswith("/")]

    @property
    def _max_identifier_length(self) -> int:
        return self._destination.capabilities.max_identifier_length

    def _load_part(
        self, part: BatchPart, fields: BatchFields, table: Table, staged: StagedRows | None
    ) -> Outcome:
        """Loads staged rows. `staged` is None for a part that is in the ledger: the destination then stores
        nothing and returns what it recorded the first time.
        """
        if staged is not None:
            crash_point("pipeline.before_load")
        files, rows = (staged.files, fields.events) if staged is not None else ([], 0)
        id = part.origin.load_id(table.name)
        with self._times.of("load"):
            loaded = self._destination.load(Load(id=id, table=table, files=files, rows=rows))
        if staged is not None:
            crash_point("pipeline.after_load")
        if fields.malformed:
            self._rejects.write(malformed_lines(part.lines), part.origin.name)
        if loaded.refused:
            self._rejects.write(_refused_lines(part.lines, loaded.refused), part.origin.name)
        return Outcome(
            events=fields.events + fields.malformed,
            rows=loaded.rows,
            rejected=fields.malformed + len(loaded.refused),
            unmapped=loaded.unmapped + (staged.unmapped if staged is not None else 0),
        )

    def _reject_part(self, part: BatchPart, fields: BatchFields) -> Outcome:
        """Rejects all lines: no event has a field that becomes a column."""
        if fields.malformed:
            self._rejects.write(malformed_lines(part.lines), part.origin.name)
        if fields.events:
            events = events_only(part.lines, fields).selectExpr("*", f"'{NO_COLUMN}' AS {REASON}")
            self._rejects.write(events, part.origin.name)
        count = fields.events + fields.malformed
        return Outcome(events=count, rejected=count)


def _refused_lines(lines: DataFrame, refused: Sequence[RefusedRow]) -> DataFrame:
    reasons = lines.sparkSession.createDataFrame(
        [(each.row, each.reason) for each in refused], f"{ROW} bigint, {REASON} string"
    )
    return lines.join(reasons, ROW)
