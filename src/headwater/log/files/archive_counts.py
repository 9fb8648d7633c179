"""The counts of archived files, day by day; those of a finished day are kept in a file beside its folder.

archive/2026-11-16/               the files of a day, with their statuses
archive/2026-11-16.counts.json    their counts, so that `status` does not read 300 statuses a day and token
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder, status_path
from headwater.system.durable_files import replace


class DestinationStat(msgspec.Struct):
    """Counts of events at a destination, from the statuses that are kept.

    events = rows + skipped + rejected, over the files that are loaded into all their tables. `open_rejects`
    are those that were neither replayed nor dropped.
    """

    id: str
    files: int = 0
    events: int = 0
    rows: int = 0
    skipped: int = 0
    rejected: int = 0
    open_rejects: int = 0
    unmapped: int = 0
    """Values that fit no column, and are in `_unmapped_data`."""
    open_files: int = 0
    """Files that some tables have and others lack: their events are counted when all have them."""
    open_rows: int = 0
    """Rows of those files in the tables that have them."""

    def add(self, other: DestinationStat) -> None:
        for name in self.__struct_fields__[1:]:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class DamagedFile(msgspec.Struct):
    """An event file in which damage was found, whose damaged lines are rejects; or a queue of a stream."""

    file: str
    damage: str


class FileCounts(msgspec.Struct):
    """The counts of some event files."""

    files: int = 0
    bytes: int = 0
    destinations: dict[str, DestinationStat] = {}
    damaged: list[DamagedFile] = []

    def add_file(self, name: str, size: int, status: FileStatus) -> None:
        """Add a file by its status."""
        self.files += 1
        self.bytes += size
        if status.damage:
            self.damaged.append(DamagedFile(name, status.damage))
        for id in {destination for destination, _ in status.pairs} | status.counts.keys():
            loaded = [pair for (owner, _), pair in status.pairs.items() if owner == id and pair.uploaded]
            rows, unmapped = sum(pair.rows for pair in loaded), sum(pair.unmapped for pair in loaded)
            found = DestinationStat(id, unmapped=unmapped)
            if counts := status.counts.get(id):
                found.files, found.rows = 1, rows
                found.events, found.skipped = counts.events, counts.skipped
                found.rejected = counts.rejected
            elif rows:
                found.open_files, found.open_rows = 1, rows
            self.destinations.setdefault(id, DestinationStat(id)).add(found)

    def add(self, other: FileCounts) -> None:
        """Add the counts of other files."""
        self.files += other.files
        self.bytes += other.bytes
        self.damaged += other.damaged
        for id, found in other.destinations.items():
            self.destinations.setdefault(id, DestinationStat(id)).add(found)


class _Kept(msgspec.Struct):
    changed_ns: int
    """When the folder of the day was last changed: later files are not in the counts."""
    counts: FileCounts


_KEPT = json_decoder(_Kept)


def count_archive(events_dir: Path) -> FileCounts:
    """The counts of the whole archive."""
    total = FileCounts()
    for day in _days(events_dir):
        kept = _kept(day)
        total.add(kept.counts if kept is not None else _count(day))
    return total


def keep_counts(events_dir: Path, now: float) -> None:
    """Keep the counts of the days that are over; those of removed days go."""
    today = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
    days = list(_days(events_dir))
    for day in days:
        if day.name < today and _kept(day) is None:
            changed_ns = day.stat().st_mtime_ns  # before they are counted, so that a later file is noticed
            replace(_counts_path(day), with_checksum(msgspec.json.encode(_Kept(changed_ns, _count(day)))))
    for path in EventFolder(events_dir).archive.glob("????-??-??.counts.json"):
        if not path.with_name(path.name[:10]).exists():
            path.unlink(missing_ok=True)


def _days(events_dir: Path) -> Iterable[Path]:
    return sorted(path for path in EventFolder(events_dir).archive.glob("????-??-??") if path.is_dir())


def _counts_path(day: Path) -> Path:
    return day.with_name(f"{day.name}.counts.json")


def _kept(day: Path) -> _Kept | None:
    """The kept counts of a day; None if there are none, or the day has changed since."""
    try:
        kept = _KEPT.decode(checked(_counts_path(day).read_bytes()))
        return kept if kept.changed_ns == day.stat().st_mtime_ns else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _count(day: Path) -> FileCounts:
    found = FileCounts()
    for path, size in _sizes(day):
        found.add_file(path.name, size, FileStatus.read(status_path(path)))
    return found


def _sizes(day: Path) -> Iterator[tuple[Path, int]]:
    for path in sorted(day.glob("*.log.gz")):
        try:
            yield path, path.stat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue
