"""The results of loads and cycles: counts of rows, rejects and errors, and seconds per step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError
from headwater.formats.printable import printable_line
from headwater.pipeline.spark.spark_errors import cause_of


@dataclass
class Times:
    """Seconds by step: `route`, `parse`, `enrich`, `patch`, `stage`, `load`, `archive`."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Adds the seconds of the block to a step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began


@dataclass
class Outcome:
    """The counts of loads."""

    rows: int = 0
    skipped: int = 0
    rejected: int = 0
    unmapped: int = 0
    """Values in `_unmapped_data`."""
    without_room: tuple[str, ...] = ()
    """Columns that the table has no room for, the most common first."""

    def add(self, other: Outcome) -> None:
        self.rows += other.rows
        self.skipped += other.skipped
        self.rejected += other.rejected
        self.unmapped += other.unmapped
        self.without_room = tuple(dict.fromkeys((*self.without_room, *other.without_room)))


@dataclass
class TableReport:
    """The result of loading a file into one table of a destination."""

    table: str
    rows: int = 0
    rejected: int = 0
    unmapped: int = 0
    """Values in `_unmapped_data`."""
    skipped: bool = False
    """It was loaded by an earlier cycle."""
    error: str = ""
    """The reason why it is not loaded; the next cycle tries again."""
    without_room: tuple[str, ...] = ()
    """Columns that the table has no room for, the most common first."""


@dataclass
class DestinationReport:
    """The events of a file at one destination: rows, skipped, or rejected (G3)."""

    destination: str
    events: int = 0
    skipped: int = 0
    rejected: int = 0
    pairs: list[TableReport] = field(default_factory=list)
    error: str = ""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.pairs)

    @property
    def is_done(self) -> bool:
        return not self.error and not any(table.error for table in self.pairs)


@dataclass
class FileReport:
    """The result for one event file. `busy`: another pipeline is loading it."""

    name: str
    destinations: list[DestinationReport] = field(default_factory=list)
    archived: bool = False
    busy: bool = False
    error: str = ""
    damage: str = ""
    """The damage that was found in the file; its damaged lines are rejects."""


@dataclass
class Report:
    """The result of one cycle."""

    files: list[FileReport] = field(default_factory=list)
    times: Times = field(default_factory=Times)

    @property
    def is_complete(self) -> bool:
        """Whether all files are loaded, or being loaded by another pipeline."""
        return all(file.archived or file.busy for file in self.files)

    @property
    def damaged(self) -> list[str]:
        """The damaged files, each with the number of its damaged or missing lines."""
        return [f"{file.name}: {file.damage}" for file in self.files if file.damage]

    @property
    def without_room(self) -> dict[str, list[str]]:
        """The columns without room, by destination and table."""
        found: dict[str, dict[str, None]] = {}
        for file in self.files:
            for destination in file.destinations:
                for table in destination.pairs:
                    if table.without_room:
                        names = found.setdefault(f"{destination.destination}/{table.table}", {})
                        names.update(dict.fromkeys(table.without_room))
        return {name: list(columns) for name, columns in found.items()}

    @property
    def errors(self) -> list[str]:
        """The reasons why files or tables are not loaded, each once."""
        found: dict[str, None] = {}
        for file in self.files:
            if file.error:
                found[f"{file.name}: {file.error}"] = None
            for destination in file.destinations:
                if destination.error:
                    found[f"{destination.destination}: {destination.error}"] = None
                for table in destination.pairs:
                    if table.error:
                        found[f"{destination.destination}/{table.table}: {table.error}"] = None
        return list(found)


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, HeadwaterError):
        return printable_line(text)
    return printable_line(cause_of(text))
