"""A micro-batch: a stretch of a queue goes through the steps of batch mode to its tables (seed 003)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.crash_points import crash_point
from headwater.destinations.table import ROW, UNMAPPED, Table
from headwater.errors import HeadwaterError, LoadRefused, TableRefused
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.streams.stream_cursor import Planned
from headwater.pipeline.load import Loader, Origin, Outcome, as_wanted, takes
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.enrich.lookup_join import Joined, Rule, look_up_few
from headwater.pipeline.steps.names import sanitise
from headwater.pipeline.steps.read_lines import LINE, REASON, rejects_of
from headwater.pipeline.steps.route import Split, scan_tables
from headwater.pipeline.steps.stage import write_small
from headwater.pipeline.steps.template import Template
from headwater.pipeline.stream.position_range import Arrived, Stretch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.pipeline.steps.batch_schema import Scanned
    from headwater.pipeline.steps.project import Fit

__all__ = ["MicroBatch", "Result", "SparkInterrupted", "StreamLoader"]

log = logging.getLogger(__name__)

MAX_PIECES = 256
"""So many loads may be tried in search of what a destination refuses; what is left then is rejected whole."""

INTERRUPTIONS = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Python daemon failed to launch worker",
    "ExecutorLostFailure",
    "SparkContext was shut down",
)
"""What Spark says when a process of its own has failed, rather than an expression on an event."""


class SparkInterrupted(HeadwaterError):
    """A process of Spark's was killed, or did not come up in time. No event is at fault; try again."""

    retryable = True


@dataclass
class Result:
    """What became of a micro-batch."""

    rows: int = 0
    skipped: int = 0
    rejected: int = 0
    unmapped: int = 0
    tables: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, outcome: Outcome) -> None:
        self.rows += outcome.rows
        self.rejected += outcome.rejected
        self.unmapped += outcome.unmapped
        self.tables[table] = self.tables.get(table, 0) + outcome.rows


class StreamLoader(Loader):
    """Knows the structure of tables that it has seen; looks up and stages small batches by the driver."""

    def __init__(self, *arguments: Any, browser_key: str = "") -> None:
        super().__init__(*arguments, browser_key=browser_key)
        self.browser_key = browser_key
        self._known: dict[str, Table] = {}

    def load_id(self, file: Origin, table: str) -> str:
        assert isinstance(file, Stretch)
        return file.load_id(table)

    def forget(self, table: str) -> None:
        """Ask the destination for the structure next time."""
        self._known.pop(table, None)

    def patch(self, name: str, scanned: Scanned) -> tuple[Fit, Table]:
        known = self._known.get(name)
        if known is not None:
            fitted, wanted = self.wanted(name, scanned, known)
            has_key = not wanted.primary_key or wanted.primary_key in (known.primary_key, known.users_key)
            if has_key and takes(known, fitted):
                return fitted, as_wanted(known, wanted)
        fitted, table = super().patch(name, scanned)
        self._known[name] = table
        return fitted, table

    def look_up(
        self, events: DataFrame, scanned: Scanned, rules: Sequence[Rule], folder: Path
    ) -> list[Joined]:
        return look_up_few(events, scanned.root, rules)

    def stage(self, rows: DataFrame, fitted: Fit, folder: Path) -> tuple[list[str], int]:
        table = write_small(rows, folder)
        unmapped = 0
        if fitted.needs_unmapped:
            for text in table.column(UNMAPPED).drop_null().to_pylist():
                unmapped += len(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
        return [str(folder / "rows.parquet")], unmapped


class MicroBatch:
    """One stretch. `persist` writes the plan down; `patiently` tries until the destination is there.

    What is refused is looked for by halves, and the cuts are written down before anything is loaded: a piece
    that was loaded is never loaded again as part of another one (G5).
    """

    def __init__(
        self,
        loader: StreamLoader,
        stretch: Stretch,
        plan: Planned,
        *,
        events_dir: Path,
        now: float,
        persist: Callable[[], None],
        patiently: Callable[[Callable[[], Outcome]], Outcome],
        arrived: Arrived | None = None,
    ) -> None:
        self._loader = loader
        self._stretch = stretch
        self._plan = plan
        self._events_dir = events_dir
        self._now = now
        self._persist = persist
        self._patiently = patiently
        self._arrived = arrived or Arrived()
        self._pieces = 0
        self._failed: list[tuple[DataFrame, str, Exception]] = []
        self.result = Result()

    def run(self, lines: DataFrame) -> Result:
        """Load all tables of the lines, then keep what was refused."""
        settings = self._loader.settings
        template = Template(settings.table_name_template)
        limit = self._loader.destination.capabilities.max_identifier_length
        if template.constant is None:
            key = self._loader.browser_key
            self._tables(scan_tables(lines, template, max_identifier_length=limit, browser_key=key))
        elif template.constant:
            table = sanitise(template.constant, limit)
            self._table(table, lines)
        else:
            self.result.skipped = lines.count()
        return self.result

    def _tables(self, routed: Split) -> None:
        for table in routed.tables:
            self._table(table, routed.table(table), routed.scanned.get(table))
        if routed.rejected:
            self._write(self._rejects(routed.rejects()))
            self.result.rejected += routed.rejected
        self.result.skipped += routed.skipped

    def _table(self, table: str, lines: DataFrame, scanned: Scanned | None = None) -> None:
        if there := self._arrived.condition(self._stretch, table):
            self.result.rows += lines.where(there).count()
            lines, scanned = lines.where(f"NOT ({there})"), None
        self._load(table, lines, self._stretch, scanned)
        self._reject(table)

    def _load(self, table: str, lines: DataFrame, stretch: Stretch, scanned: Scanned | None = None) -> None:
        """Load the piece, or the parts of it that are taken."""
        known = [scanned] if scanned is not None else []
        piece = (table, stretch.first, stretch.end)
        if piece not in self._plan.split:
            self._pieces += 1
            try:
                outcome = self._patiently(lambda: self._attempt(table, lines, stretch, known))
            except _refusals() as error:
                is_whole = isinstance(error, TableRefused) or self._pieces >= MAX_PIECES
                if is_whole or stretch.end - stretch.first == 1:
                    self._failed.append((lines, _reason(error), error))
                    return
                self._plan.split.append(piece)
                self._persist()
                crash_point("stream.after_split")
            else:
                self.result.add(table, outcome)
                for rejects in outcome.rejects:
                    self._write(rejects)
                return
        for half in stretch.halves():
            own = lines.where(f"{ROW} >= {half.first} AND {ROW} < {half.end}")
            self._load(table, own, half)

    def _attempt(self, table: str, lines: DataFrame, stretch: Stretch, known: list[Scanned]) -> Outcome:
        """The load; once more with the table's structure asked for anew, if it is refused.

        What is known of the fields serves once: lookups add to it what they find.
        """
        try:
            return self._once(table, lines, stretch, known.pop() if known else None)
        except _refusals() as error:
            reason = _reason(error)
            log.warning("%s, table %s: %s; its structure is read again.", stretch.name, table, reason)
        self._loader.forget(table)
        return self._once(table, lines, stretch)

    def _once(
        self, table: str, lines: DataFrame, stretch: Stretch, scanned: Scanned | None = None
    ) -> Outcome:
        from pyspark.errors import PySparkException

        try:
            return self._loader.load(lines, table, stretch, self._now, scanned)
        except PySparkException as error:
            if any(text in str(error) for text in INTERRUPTIONS):
                raise SparkInterrupted(f"{stretch.name}, table {table}: {_reason(error)}") from error
            raise

    def _reject(self, table: str) -> None:
        failed, self._failed = self._failed, []
        if not failed:
            return
        if not self.result.tables.get(table) and not isinstance(failed[0][2], HeadwaterError):
            # Spark has failed with everything: that is no fault of the events
            raise failed[0][2]
        for lines, reason, _ in failed:
            reasoned = lines.where(f"trim({LINE}) != ''").selectExpr("*", f"{literal(reason)} AS {REASON}")
            count = self._write(self._rejects(reasoned))
            self.result.rejected += count
            log.error("%s, table %s: %d event(s) rejected: %s", self._stretch.name, table, count, reason)

    def _rejects(self, lines: DataFrame) -> Iterable[EventError]:
        origin = self._stretch
        return rejects_of(lines, destination_id=origin.destination_id, file=origin.name, now=self._now)

    def _write(self, rejects: Iterable[EventError]) -> int:
        found = iter(rejects)
        if (first := next(found, None)) is None:
            return 0
        return DestinationRejects(self._events_dir).append(
            self._stretch.destination_id, chain([first], found)
        )


def _refusals() -> tuple[type[Exception], ...]:
    from pyspark.errors import PySparkException

    return (LoadRefused, TableRefused, PySparkException)


def _reason(error: Exception) -> str:
    text = error.text if isinstance(error, HeadwaterError) else str(error)
    return text.strip().split("\n", 1)[0]
