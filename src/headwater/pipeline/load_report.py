"""What a cycle did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["DestinationReport", "FileReport", "PairReport", "Report", "Times"]


@dataclass
class Times:
    """Seconds by step: `route`, `scan`, `enrich`, `patch`, `stage`, `load`, `archive`."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Count what is done in the block as this step's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began


@dataclass
class PairReport:
    """One destination and table of a file."""

    table: str
    rows: int = 0
    rejected: int = 0
    unmapped: int = 0
    """Values that went to `_unmapped_data`."""
    skipped: bool = False
    """It was loaded before: nothing was done."""
    error: str = ""
    """Why it is not loaded; it is tried again by the next cycle."""


@dataclass
class DestinationReport:
    """What became of a file's events at one destination: rows, skipped, or rejected (G3)."""

    destination: str
    events: int = 0
    skipped: int = 0
    rejected: int = 0
    pairs: list[PairReport] = field(default_factory=list)
    error: str = ""

    @property
    def rows(self) -> int:
        return sum(pair.rows for pair in self.pairs)

    @property
    def is_done(self) -> bool:
        return not self.error and not any(pair.error for pair in self.pairs)


@dataclass
class FileReport:
    """One file of events. `busy`: another pipeline has it."""

    name: str
    destinations: list[DestinationReport] = field(default_factory=list)
    archived: bool = False
    busy: bool = False
    error: str = ""


@dataclass
class Report:
    """One cycle."""

    files: list[FileReport] = field(default_factory=list)
    times: Times = field(default_factory=Times)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was there is loaded."""
        return all(file.archived or file.busy for file in self.files)

    @property
    def errors(self) -> list[str]:
        """Why something is not loaded, each reason once."""
        found: dict[str, None] = {}
        for file in self.files:
            if file.error:
                found[f"{file.name}: {file.error}"] = None
            for destination in file.destinations:
                if destination.error:
                    found[f"{destination.destination}: {destination.error}"] = None
                for pair in destination.pairs:
                    if pair.error:
                        found[f"{destination.destination}/{pair.table}: {pair.error}"] = None
        return list(found)
