"""Lines that a destination cannot store become its rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.destinations.table import ROW
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.pipeline.steps.read_lines import LINE, REASON, file_and_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RejectWriter:
    """Writes lines, which have their reason beside them, to the rejects of one destination."""

    def __init__(self, events_dir: Path, destination_id: str, clock: Clock) -> None:
        self._events_dir = events_dir
        self._destination_id = destination_id
        self._clock = clock

    def write(self, lines: DataFrame, source: str) -> int:
        """Writes lines of one source, with one partition in memory at a time (G8); returns their number."""
        now = self._clock.now()
        rows = _as_bytes(lines).toLocalIterator()
        return self._write(
            self._reject(bytes(row[LINE]), row[REASON], f"{source}:{row[ROW]}", now) for row in rows
        )

    def write_of_files(self, lines: DataFrame, sources: Sequence[str]) -> int:
        """Writes lines of several small files, in one job; returns their number."""
        now = self._clock.now()
        rows = [
            (bytes(row[LINE]), row[REASON], *file_and_line(row[ROW])) for row in _as_bytes(lines).collect()
        ]
        return self._write(
            self._reject(line, reason, f"{sources[file]}:{number}", now)
            for line, reason, file, number in rows
        )

    def _reject(self, line: bytes, reason: str, source: str, now: float) -> EventError:
        return EventError.of(line, reason, destination_id=self._destination_id, source=source, at=now)

    def _write(self, rejects: Iterable[EventError]) -> int:
        found: Iterator[EventError] = iter(rejects)
        if (first := next(found, None)) is None:
            return 0
        return DestinationRejects(self._events_dir).append(self._destination_id, chain([first], found))


def _as_bytes(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    # a malformed line may not be UTF-8
    return lines.select(functions.col(LINE).cast("binary").alias(LINE), ROW, REASON)
