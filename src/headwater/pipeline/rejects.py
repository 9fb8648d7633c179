"""Lines that a destination cannot store become its rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.destinations.table import ROW
from headwater.log.files.checked_lines import Line, read_line
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.pipeline.spark.compiled_classes import have_checksums
from headwater.pipeline.steps.read_lines import LINE, REASON, file_and_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True)
class RejectWriter:
    """Writes lines, each with a reason, to the rejects of one destination."""

    events_dir: Path
    destination_id: str
    clock: Clock

    def write(self, lines: DataFrame, *sources: str) -> int:
        """Writes lines of one source, with one partition in memory at a time (G8); returns their number.

        With several sources it collects them in one job.
        """
        from pyspark.sql import functions

        is_checked = have_checksums(lines, LINE)
        # a malformed line may not be UTF-8
        rows = lines.select(functions.col(LINE).cast("binary").alias(LINE), ROW, REASON)
        found = rows.toLocalIterator() if len(sources) == 1 else iter(rows.collect())
        if (first := next(found, None)) is None:
            return 0
        now = self.clock.now()
        rejects = (self._reject(row, sources, now, is_checked) for row in chain([first], found))
        return DestinationRejects(self.events_dir).append(self.destination_id, rejects)

    def _reject(self, row: Row, sources: Sequence[str], now: float, is_checked: bool) -> EventError:
        file, number = (0, row[ROW]) if len(sources) == 1 else file_and_line(row[ROW])
        line = bytes(row[LINE])
        found = read_line(line) if is_checked else Line(line, 0)
        return EventError.of(
            found.event,
            row[REASON],
            destination_id=self.destination_id,
            source=f"{sources[file]}:{number}",
            at=now,
            damaged=found.is_damaged,
        )
