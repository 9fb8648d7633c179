"""Backfill: loads the archive into a destination that was added later."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.files.checked_lines import CHUNK_BYTES, LineReader, open_lines
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import ArchivedFile, EventFolder, IncomingFile, archived_files, status_path
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.load_report import FileReport, Report
from headwater.pipeline.spark.storage import Staging
from headwater.settings import DestinationSettings, Settings, TokenSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

INCOMING = "incoming"
"""The origin that means the files of batch mode; any other is the id of a stream destination."""
_TOKEN = "archive"  # noqa: S105


class _Selected(msgspec.Struct):
    """The fields that select an event."""

    timestamp: object = msgspec.field(name="_timestamp", default=None)
    api_key: object = None


def default_until(settings: Settings, destination: DestinationSettings) -> datetime | None:
    """The time since which the destination has a queue; None without one."""
    try:
        made = (EventFolder(settings.events_dir).queue(destination.id) / "identity").stat().st_mtime
    except FileNotFoundError:
        return None
    return datetime.fromtimestamp(made, UTC)


def choose(
    settings: Settings,
    destination: DestinationSettings,
    since: datetime,
    origin: str = "",
) -> list[ArchivedFile]:
    """The files of the archive to load, oldest first.

    From one origin only: the files of batch mode, or those of one stream destination. An event may be in
    several, and would be loaded from each.
    """
    found: dict[str, list[ArchivedFile]] = {}
    for file in archived_files(settings.events_dir):
        # the name has the end of the file only; later events in it are left out line by line
        if file.at < since or file.kind == "failed":
            continue
        if file.kind == "incoming" and destination.wants(file.id):
            found.setdefault(INCOMING, []).append(file)
        elif file.kind == "streaming-archive":
            found.setdefault(file.id, []).append(file)
    if origin:
        return found.get(origin, [])
    own = [name for name in (INCOMING, destination.id) if name in found]
    others = [name for name in found if name != destination.id]
    if own[:1] == [INCOMING] or len(others) <= 1:
        return found.get(INCOMING) or found.get(others[0] if others else "", [])
    raise HeadwaterError(
        f"the archive has events of several streams: {', '.join(sorted(others))}.",
        hint="Name the one to load from with --from.",
    )


def backfill(
    settings: Settings,
    spark: SparkSession,
    destination: DestinationSettings,
    files: list[ArchivedFile],
    since: datetime,
    until: datetime | None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Report]:
    """Loads the files one after the other, each as a cycle does, and keeps their rejects.

    A file that is loaded whole has the same id in the ledger as in batch mode, so a destination that has it
    does not load it again (G5); the same holds for a backfill that is repeated with the same limits.
    """
    total = sum(file.path.stat().st_size for file in files)
    done = 0
    keys = _keys(settings, destination)
    with Staging(settings.staging_dir) as staging:
        for file in files:
            if progress is not None:
                progress(done, total)
            done += file.path.stat().st_size
            with staging.folder() as folder:
                path = EventFolder(folder).incoming / file.path.stem
                path.parent.mkdir()
                try:
                    count, damage = _unpack(file.path, path, since, until, keys)
                except (OSError, EOFError, zlib.error) as error:
                    yield Report([FileReport(file.path.name, error=f"it cannot be unpacked: {error}")])
                    continue
                if damage:
                    logger.error("%s is damaged: %s.", file.path.name, damage)
                if count:
                    yield run_cycle(
                        _alone(settings, destination, file),
                        spark,
                        files=[IncomingFile(path, "incoming", _TOKEN, file.at)],
                    )
    if progress is not None:
        progress(total, total)


def _alone(settings: Settings, destination: DestinationSettings, file: ArchivedFile) -> Settings:
    """The settings of a cycle for this destination only, with the events of all tokens."""
    secrets = [
        token.client_secret
        for token in settings.tokens
        if token.client_secret and (file.kind != "incoming" or token.id == file.id)
    ]
    return msgspec.structs.replace(
        settings,
        destinations=(msgspec.structs.replace(destination, mode="batch", only_keys=()),),
        tokens=(TokenSettings(id=_TOKEN, client_secret="\n".join(secrets)),),
    )


def _keys(settings: Settings, destination: DestinationSettings) -> set[str] | None:
    """The `api_key` values of events of the destination's tokens; None selects all events."""
    if not destination.only_keys:
        return None
    wanted = [token for token in settings.tokens if destination.wants(token.id)]
    return {token.id for token in wanted} | {token.client_secret for token in wanted if token.client_secret}


def _unpack(
    source: Path, target: Path, since: datetime, until: datetime | None, keys: set[str] | None
) -> tuple[int, str]:
    """Writes the selected lines; returns their number, and the damage of the file.

    Malformed and damaged lines are left to the pipeline.
    """
    decoder = msgspec.json.Decoder(_Selected)
    is_file_of_one = source.name.startswith("incoming.")
    count = 0
    written = FileStatus.read(status_path(source)).written
    reader = LineReader(source, is_checked=True if written is not None else None)
    with open_lines(source) as packed, target.open("wb") as unpacked:
        while chunk := packed.readlines(CHUNK_BYTES):
            for raw, line in zip(chunk, reader.read(chunk), strict=True):
                try:
                    selected = _Selected() if line.is_damaged else decoder.decode(line.event)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    selected = _Selected()
                at = _time(selected.timestamp)
                if at is not None and (at < since or (until is not None and at >= until)):
                    continue
                if keys is not None and not is_file_of_one and selected.api_key not in keys:
                    continue
                unpacked.write(raw)
                count += 1
    return count, reader.problem(written)


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
