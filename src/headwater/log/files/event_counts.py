"""Counts of the event files: waiting, loaded, rejected, archived (G3).

Only reads, so it may run beside other processes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from headwater.log.files.archive_counts import DamagedFile, DestinationStat, FileCounts, count_archive
from headwater.log.files.file_status import FileStatus, LastCycle, PipelineNow
from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import tail_of
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.log.rejects.totals import Dropped
from headwater.log.streams import StreamCursor, damage_of, stream_folder, topic_folders
from headwater.system.durable_files import is_locked

COUNT_SECONDS = 1.0  # to wait for another thread that counts rejects


class TokenStat(msgspec.Struct):
    """Files of one token that are not done."""

    id: str
    active_bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0


class StreamStat(msgspec.Struct):
    """A destination in stream mode, by its cursor: appended = rows + skipped + rejected + missing +
    waiting, since its queue was made.
    """

    id: str
    running: bool
    waiting: int
    rows: int
    skipped: int
    rejected: int
    missing: int
    archived: int
    at: float
    error: str
    missing_at: float = 0.0
    """When the last of the missing events were found to be missing; 0 if none is."""


class OpenPair(msgspec.Struct):
    """A destination and table that a file could not be loaded into; it is tried again with every cycle."""

    file: str
    destination: str
    table: str
    error: str


class EventsStat(msgspec.Struct):
    """The counts of all event files, destinations and streams."""

    writing: bool
    tokens: list[TokenStat]
    replays: int
    oldest_seconds: float
    destinations: list[DestinationStat]
    open: list[OpenPair]
    archived_files: int
    archived_bytes: int
    last_cycle: LastCycle | None
    streams: list[StreamStat] = []
    damaged: list[DamagedFile] = []
    dropped_rejects: list[Dropped] = []
    pipeline: PipelineNow | None = None


def stat_events(events_dir: Path, now: float, rejects: DestinationRejects | None = None) -> EventsStat:
    """Read the names, sizes and statuses of all files; `rejects` that are kept count what is new alone."""
    folder = EventFolder(events_dir)
    tokens: dict[str, TokenStat] = {}
    counts = FileCounts()
    found = EventsStat(is_locked(folder.incoming), [], 0, 0.0, [], [], 0, 0, LastCycle.load(events_dir))
    found.pipeline = PipelineNow.load(events_dir)
    for id, path in folder.active_files().items():
        tokens.setdefault(id, TokenStat(id)).active_bytes += _size(path)
    for file in folder.rotated_files():
        age_seconds = now - file.rotated_at.timestamp()
        found.oldest_seconds = max(found.oldest_seconds, age_seconds)
        if file.token_id:
            token = tokens.setdefault(file.token_id, TokenStat(file.token_id))
            token.waiting_files += 1
            token.waiting_bytes += _size(file.path)
        else:
            found.replays += 1
        status = FileStatus.load(file)
        counts.add_file(file.name, _size(file.path), status)
        found.open += [
            OpenPair(file.name, destination, table, pair.error)
            for (destination, table), pair in status.pairs.items()
            if not pair.uploaded
        ]
    archived = count_archive(events_dir)
    found.archived_files, found.archived_bytes = archived.files, archived.bytes
    counts.add(archived)
    destinations, found.damaged = counts.destinations, counts.damaged
    rejects = rejects or DestinationRejects(events_dir)
    found.dropped_rejects = rejects.dropped()
    for id, count in rejects.counts(timeout_seconds=COUNT_SECONDS).items():
        destinations.setdefault(id, DestinationStat(id)).open_rejects = count
    for id, queue in folder.queues().items():
        found.streams += _streams(id, queue)
        found.damaged += [DamagedFile(queue.name, damage) for damage in damage_of(queue)]
    found.tokens = sorted(tokens.values(), key=lambda token: token.id)
    found.destinations = sorted(destinations.values(), key=lambda destination: destination.id)
    return found


def _streams(id: str, queue: Path) -> list[StreamStat]:
    """The counts of a queue, or of each partition of the topics that feed the destination."""
    return [_stream(f"{id} {path.name}", path) for path in topic_folders(queue)] or [_stream(id, queue)]


def _stream(id: str, queue: Path) -> StreamStat:
    cursor = StreamCursor.peek(queue) or StreamCursor(queue="", position=1, archived=1)
    return StreamStat(
        id,
        is_locked(stream_folder(queue)),
        max(0, tail_of(queue) - cursor.position),
        cursor.rows,
        cursor.skipped,
        cursor.rejected,
        cursor.missing,
        cursor.archived,
        cursor.at,
        cursor.error,
        cursor.missing_at,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it was completed or archived meanwhile
        return 0
