"""Backfill: loads the archive into a destination that was added later."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import DestinationUnavailable, HeadwaterError
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import ArchivedFile, EventFolder, IncomingFile, archived_files, status_path
from headwater.pipeline.batch.archived_ranges import ArchivedRanges
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.batch.other_origins import KnownEvents, OtherOrigins
from headwater.pipeline.batch.unpacked_file import TOKEN, Selection, UnpackedFile
from headwater.pipeline.load_report import FileReport, Report
from headwater.pipeline.spark.storage import Staging
from headwater.settings import DestinationSettings, Settings, TokenSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

INCOMING = "incoming"
"""The origin that means the files of batch mode; any other is the id of a stream destination."""


def default_until(
    settings: Settings, destination: DestinationSettings, files: list[ArchivedFile]
) -> datetime | None:
    """The time since which the destination has a queue; None without one, or for its own archive.

    The ledger knows the events of its own archive by their positions; those of other archives it does not.
    """
    if all(file.kind == "streaming-archive" and file.id == destination.id for file in files):
        return None
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
    former: Collection[str] = (),
) -> list[ArchivedFile]:
    """The files of the archive to load, oldest first; `former` are ids that tokens had before.

    From one origin only: the files of batch mode, or those of one stream destination. An event may be in
    several, and would be loaded from each.
    """
    found: dict[str, list[ArchivedFile]] = {}
    for file in archived_files(settings.events_dir):
        # the name has the end of the file only; later events in it are left out line by line
        if file.at < since or file.kind == "failed":
            continue
        if file.kind == "incoming" and (
            destination.wants(file.id)
            or file.id in former
            or destination.id in (FileStatus.read(status_path(file.path)).wanted_by or ())
        ):
            found.setdefault(INCOMING, []).append(file)
        elif file.kind == "streaming-archive":
            found.setdefault(file.id, []).append(file)
    if origin:
        return found.get(origin, [])
    own = [name for name in (INCOMING, destination.id) if name in found]
    others = [name for name in found if name != destination.id]
    if destination.mode == "stream" and destination.id in found:
        return found[destination.id]
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
    selection: Selection,
    progress: Callable[[int, int], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[Report]:
    """Loads the files one after the other, until `stopping` is set, and keeps their rejects.

    Nothing is stored twice (G5), whatever other times, tokens or ways the destination got it by. A file that
    is selected whole has the same id in the ledger as in batch mode; of others, and of the archive of the
    destination's own queue, the ledger knows each event. Events that the destination has, or gets, by another
    way than these files are left out.
    """
    total = sum(file.path.stat().st_size for file in files)
    done = left_out = 0
    with ExitStack() as stack:
        staging = stack.enter_context(Staging(settings.staging_dir))
        known = stack.enter_context(closing(KnownEvents(stack.enter_context(staging.folder()))))
        OtherOrigins(settings, destination, files, selection, staging).add_to(known)
        for file in files:
            if stopping is not None and stopping.is_set():
                break
            if progress is not None:
                progress(done, total)
            done += file.path.stat().st_size
            with staging.folder() as folder:
                path = EventFolder(folder).incoming / file.path.stem
                path.parent.mkdir()
                is_own = file.kind == "streaming-archive" and file.id == destination.id
                senders = None
                if file.kind != "incoming" and not is_own:
                    senders = _senders(settings, destination, selection.former)
                archived = UnpackedFile(
                    file, path, selection, is_own=is_own, senders=senders, leave_out=known
                )
                try:
                    archived.unpack()
                except (OSError, EOFError, zlib.error) as error:
                    yield Report([FileReport(file.path.name, error=f"it cannot be unpacked: {error}")])
                    continue
                if archived.damage:
                    logger.error("%s is damaged: %s.", file.path.name, archived.damage)
                left_out += archived.left_out
                if archived.selected:
                    yield _load(settings, spark, destination, archived, staging)
    if progress is not None:
        progress(total, total)
    if left_out:
        logger.info(
            "%d events were left out: %s has them, or gets them, by another way.", left_out, destination.id
        )


def _load(
    settings: Settings,
    spark: SparkSession,
    destination: DestinationSettings,
    archived: UnpackedFile,
    staging: Staging,
) -> Report:
    file, path = archived.file, archived.path
    try:
        by_ranges = ArchivedRanges(settings, spark, destination, staging)
    except DestinationUnavailable as error:
        return Report([FileReport(file.path.name, error=str(error))])
    try:
        if not archived.is_whole or archived.is_own or by_ranges.has_any(archived.keys):
            if archived.status.cuts_of(destination.id):
                text = (
                    "it was loaded by pieces, since the destination refused some of its events; choose times "
                    "that contain all of it"
                )
                return Report([FileReport(file.path.name, error=text)])
            found = by_ranges.load(
                file.path.name, archived.identity, archived.events(), _secrets(settings, file)
            )
            return Report([found])
    finally:
        by_ranges.close()
    status = FileStatus(status_path(path))
    if archived.status.written is not None:
        status.record_written(archived.status.written)
    for table, cuts in archived.status.cuts_of(destination.id).items():
        for first, end in cuts:
            status.cut(destination.id, table, first, end)
    status.save()
    return run_cycle(
        _alone(settings, destination, file), spark, files=[IncomingFile(path, "incoming", TOKEN, file.at)]
    )


def _secrets(settings: Settings, file: ArchivedFile) -> str:
    """The client secrets by which events of browsers are known."""
    return "\n".join(
        token.client_secret
        for token in settings.tokens
        if token.client_secret and (file.kind != "incoming" or token.id == file.id)
    )


def _alone(settings: Settings, destination: DestinationSettings, file: ArchivedFile) -> Settings:
    """The settings of a cycle for this destination only, with the events of all tokens."""
    return msgspec.structs.replace(
        settings,
        destinations=(msgspec.structs.replace(destination, mode="batch", only_keys=()),),
        tokens=(TokenSettings(id=TOKEN, client_secret=_secrets(settings, file)),),
    )


def _senders(
    settings: Settings, destination: DestinationSettings, former: Collection[str]
) -> set[object] | None:
    """The `api_key` values of events of the destination's tokens; None selects all events."""
    if not destination.only_keys:
        return None
    wanted = [token for token in settings.tokens if destination.wants(token.id)]
    secrets = {token.client_secret for token in wanted if token.client_secret}
    return {*former, *(token.id for token in wanted), *secrets}
