"""The status of an event file: its lines, each destination and table; what the batch pipeline does."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.log.files.checked_lines import Written, has_checksums
from headwater.log.files.layout import IncomingFile, status_path
from headwater.system.durable_files import replace

logger = logging.getLogger(__name__)


class TableStatus(msgspec.Struct):
    """The result of loading a file into one table of a destination."""

    uploaded: bool
    error: str = ""
    rows: int = 0
    unmapped: int = 0
    """Values of those rows that fit no column, and are in `_unmapped_data`."""


class Counts(msgspec.Struct):
    """A file's events at one destination, by outcome: they are rows, skipped, or rejected (G3)."""

    events: int = 0
    skipped: int = 0
    rejected: int = 0


class _Content(msgspec.Struct, omit_defaults=True):
    status: dict[str, TableStatus] = {}
    counts: dict[str, Counts] = {}
    written: Written | None = None
    damage: str = ""
    cuts: dict[str, list[tuple[int, int]]] = {}
    wanted_by: list[str] | None = None
    templates: dict[str, str] = {}
    queue: str = ""
    positions: list[tuple[int, int, int]] = []


class FileStatus:
    """A file's status. Nothing is on disk before `save`, which is all or nothing."""

    def __init__(self, path: Path, content: _Content | None = None, *, is_damaged: bool = False) -> None:
        self.is_damaged = is_damaged
        self._path = path
        self._content = content or _Content()

    @classmethod
    def load(cls, file: IncomingFile) -> FileStatus:
        """The status of a file; empty if there is none yet."""
        return cls.read(file.status_path)

    @classmethod
    def read(cls, path: Path) -> FileStatus:
        """A status by its own path, such as one in the archive."""
        try:
            return cls(path, _CONTENT.decode(checked(path.read_bytes())))
        except FileNotFoundError:
            return cls(path)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # every pair is tried again, and the ledger knows those that were loaded (G5, G9)
            logger.error("%s is damaged (%s); the file is loaded again.", path, error)
            return cls(path, is_damaged=True)

    def save(self) -> None:
        """Replace the file atomically, and wait until it is on disk."""
        replace(self._path, with_checksum(msgspec.json.encode(self._content)))

    def mark(
        self, destination: str, table: str, ok: bool, rows: int = 0, error: str = "", unmapped: int = 0
    ) -> None:
        """Note that a pair was loaded, or why it was not."""
        self._content.status[f"{destination}/{table}"] = TableStatus(ok, error, rows, unmapped)

    def count(self, destination: str, *, events: int, skipped: int, rejected: int) -> None:
        """Record the counts of the file's events at a destination."""
        self._content.counts[destination] = Counts(events, skipped, rejected)

    def is_done(self, destination: str, table: str) -> bool:
        """Whether the pair was loaded: it is never loaded again."""
        pair = self._content.status.get(f"{destination}/{table}")
        return pair is not None and pair.uploaded

    def cuts(self, destination: str, table: str) -> list[tuple[int, int]]:
        """The pieces, as first row and end, that were refused whole and are loaded in halves."""
        return self._content.cuts.get(f"{destination}/{table}", [])

    def cuts_of(self, destination: str) -> dict[str, list[tuple[int, int]]]:
        """The pieces that were refused whole, by table."""
        prefix = f"{destination}/"
        return {
            key.removeprefix(prefix): cuts
            for key, cuts in self._content.cuts.items()
            if key.startswith(prefix)
        }

    def cut(self, destination: str, table: str, first: int, end: int) -> None:
        """Note that a piece was refused: a repeated load must cut in the same places (G5)."""
        self._content.cuts.setdefault(f"{destination}/{table}", []).append((first, end))

    @property
    def pairs(self) -> dict[tuple[str, str], TableStatus]:
        """All pairs that were tried, by destination and table."""
        found: dict[tuple[str, str], TableStatus] = {}
        for key, pair in self._content.status.items():
            destination, _, table = key.partition("/")
            found[destination, table] = pair
        return found

    @property
    def written(self) -> Written | None:
        """The lines that the file had when it was complete; None if that is not known."""
        return self._content.written

    @property
    def damage(self) -> str:
        """The damage that was found when the file was read; empty if there was none."""
        return self._content.damage

    def record_written(self, written: Written) -> None:
        """Note the lines of a complete file."""
        self._content.written = written

    def record_damage(self, damage: str) -> None:
        """Note the damage of the file."""
        self._content.damage = damage

    @property
    def wanted_by(self) -> list[str] | None:
        """The destinations for which the events were acknowledged; None if that is not known."""
        return self._content.wanted_by

    def record_wanted_by(self, destinations: list[str]) -> None:
        """Note for which destinations the events were acknowledged."""
        self._content.wanted_by = destinations

    @property
    def positions(self) -> tuple[str, list[tuple[int, int, int]]]:
        """Where the events of a stream's archive come from.

        The id of the queue; and line, position and epoch of the first event of each range.
        """
        return self._content.queue, self._content.positions

    def record_positions(self, queue: str, positions: list[tuple[int, int, int]]) -> None:
        """Note where the events come from."""
        self._content.queue, self._content.positions = queue, positions

    def template(self, destination: str) -> str | None:
        """The template by which tables of the destination were loaded; None before the first."""
        loaded = any(id == destination and pair.uploaded for (id, _), pair in self.pairs.items())
        return self._content.templates.get(destination) if loaded else None

    def record_template(self, destination: str, template: str) -> None:
        """Note the template: tables that are left must come from the same one (G5)."""
        self._content.templates[destination] = template

    def keep_tables(self, destination: str, tables: Collection[str]) -> None:
        """Remove failed loads into other tables: settings that have changed name those no more."""
        for (id, table), pair in self.pairs.items():
            if id == destination and table not in tables and not pair.uploaded:
                del self._content.status[f"{id}/{table}"]

    def forget(self, destination: str) -> None:
        """Note that a destination does not want the events any more."""
        content, prefix = self._content, f"{destination}/"
        content.status = {key: pair for key, pair in content.status.items() if not key.startswith(prefix)}
        content.cuts = {key: cuts for key, cuts in content.cuts.items() if not key.startswith(prefix)}
        content.counts.pop(destination, None)
        content.templates.pop(destination, None)
        content.wanted_by = [id for id in content.wanted_by or () if id != destination]

    @property
    def counts(self) -> dict[str, Counts]:
        """The counts, by destination."""
        return self._content.counts

    @property
    def is_complete(self) -> bool:
        """Whether no pair that was tried is open."""
        return all(pair.uploaded for pair in self._content.status.values())


def is_checked(path: Path) -> bool:
    """Whether the lines of a complete file have checksums, by its status or, without one, by its lines."""
    return FileStatus.read(status_path(path)).written is not None or has_checksums(path)


NAME = "last-cycle.json"
NOW_NAME = "pipeline-now.json"
STOPPED = "stopped"  # what a pipeline does that has ended in order


class LastCycle(msgspec.Struct, kw_only=True):
    """The end of a cycle that had something to do, or failed. `at` is seconds since the epoch."""

    at: float
    seconds: float
    files: int = 0
    done: int = 0
    errors: list[str] = []

    def save(self, events_dir: Path) -> None:
        """Replace the file atomically."""
        replace(events_dir / NAME, msgspec.json.encode(self))

    @classmethod
    def load(cls, events_dir: Path) -> LastCycle | None:
        """The last cycle; None if there was none or its file is damaged: it is only displayed."""
        try:
            return _LAST_CYCLE.decode((events_dir / NAME).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None


class PipelineNow(msgspec.Struct, kw_only=True):
    """What the batch pipeline does, as it last wrote. `at` is seconds since the epoch."""

    doing: str
    at: float

    def save(self, events_dir: Path) -> None:
        """Replace the file atomically."""
        events_dir.mkdir(parents=True, exist_ok=True)
        replace(events_dir / NOW_NAME, msgspec.json.encode(self))

    @classmethod
    def load(cls, events_dir: Path) -> PipelineNow | None:
        """The last one; None if there was none or its file is damaged: it is only displayed."""
        try:
            return _NOW.decode((events_dir / NOW_NAME).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None


_CONTENT = json_decoder(_Content)
_NOW = json_decoder(PipelineNow)
_LAST_CYCLE = json_decoder(LastCycle)
