"""The archive: processed files, compressed, in a folder for each day, kept as long as the settings say."""

from __future__ import annotations

import contextlib
import gzip
import logging
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from headwater.clock import Clock
from headwater.errors import LogUnavailable
from headwater.log.files.checked_lines import CHUNK_BYTES, LineReader
from headwater.log.files.file_status import FileStatus, is_checked
from headwater.log.files.layout import EventFolder, IncomingFile, archived_files
from headwater.log.leap_safe_clock import LeapSafeClock
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import make_folder, replacing, sync_folder

logger = logging.getLogger(__name__)

LEAP_SECONDS = 3 * 86400.0  # between two cycles, which cron may start once a day; a longer time is a leap
DRAFT_SECONDS = 24 * 3600  # the process that wrote a draft this old is dead
# CPU seconds per GB of events, and compression ratio: ISA-L level 2: 1.7 and 6.2; zlib level 3: 7.9 and 6.0;
# zlib level 6: 18 and 7.2. With zlib the archive took a seventh of the CPU time of a load.
ISAL_LEVEL, ZLIB_LEVEL = 2, 3


def archive(file: IncomingFile) -> Path:
    """Move a processed file with its status to the archive, and return where it is now.

    The copy is complete and on disk before the original is removed, so a crash leaves at least one of them,
    and another call finishes the move. A file that is in the archive already is no error. Damage that is
    found while the lines are copied goes into the status.
    """
    target = file.archive_path
    make_folder(target.parent)
    try:
        source = file.path.open("rb")
        lines = LineReader(file.path, is_checked=is_checked(file.path))
    except FileNotFoundError as error:
        if not target.exists():  # unless another pipeline was faster
            raise LogUnavailable(
                f"{file.path} disappeared before it was archived.",
                hint="Find out which process removed it. Rows that were loaded stay loaded.",
            ) from error
    else:
        with source, replacing(target) as raw, open_gzip(raw) as packed:
            while chunk := source.readlines(CHUNK_BYTES):
                lines.read(chunk)
                packed.write(b"".join(chunk))
        _record_damage(file, lines)
        crash_point("archive.after_copy")
        file.path.unlink(missing_ok=True)
    crash_point("archive.after_unlink")
    try:
        file.status_path.rename(target.with_name(file.status_path.name))
    except FileNotFoundError:
        pass  # it had none, or another pipeline was faster
    sync_folder(target.parent)
    sync_folder(file.path.parent)
    return target


def _record_damage(file: IncomingFile, lines: LineReader) -> None:
    status = FileStatus.load(file)
    if damage := lines.problem(status.written):
        logger.error("%s is damaged: %s. Damaged lines are rejects, not rows.", file.name, damage)
        status.record_damage(damage)
        status.save()


def open_gzip(raw: BinaryIO) -> gzip.GzipFile:
    """A gzip file without a name or time in its header, so that the same events give the same bytes."""
    try:
        from isal import igzip
    except ImportError:  # there is no wheel for some machines; it comes with headwater[pipeline] elsewhere
        return gzip.GzipFile("", "wb", ZLIB_LEVEL, raw, mtime=0)
    return igzip.IGzipFile("", "wb", ISAL_LEVEL, raw, mtime=0)  # type: ignore[no-untyped-call]


def finish_archiving(events_dir: Path) -> None:
    """Finish what a crash interrupted: move a status after its archived file, remove old drafts."""
    folder = EventFolder(events_dir)
    long_ago = time.time() - DRAFT_SECONDS
    for path in (*folder.incoming.glob("*.log.status"), *folder.failed.glob("*.log.status")):
        archived = list(folder.archive.glob(f"????-??-??/{path.stem}.gz"))
        if archived and not path.with_suffix("").exists():
            path.rename(archived[0].with_name(path.name))
        elif not path.with_suffix("").exists() and _is_left_over(path, long_ago):
            path.unlink(missing_ok=True)
    for pattern in ("incoming/.*.tmp", "failed/.*.tmp", "archive/*/.*.tmp"):
        for path in folder.path.glob(pattern):
            if path.stat().st_mtime < long_ago:
                path.unlink(missing_ok=True)


def _is_left_over(path: Path, long_ago: float) -> bool:
    """Whether a status was written for a file that a crash left without its name, long ago."""
    try:
        return path.stat().st_mtime < long_ago and not FileStatus.read(path).pairs
    except OSError:
        return False


def clean_archive(events_dir: Path, days: float, *, clock: Clock | None = None) -> int:
    """Remove the archived days that are older than `days` (0: none); returns the number of their files.

    A clock that has leapt ahead removes nothing: see `LeapSafeClock`.
    """
    if not days:
        return 0
    now = _witnessed_now(events_dir, days, clock)
    limit = (datetime.fromtimestamp(now, UTC) - timedelta(days=days)).date()
    removed = 0
    for folder in sorted(EventFolder(events_dir).archive.glob("????-??-??")):
        try:
            is_old = date.fromisoformat(folder.name) < limit
        except ValueError:
            continue  # not a folder of ours
        if is_old:
            removed += _remove_day(folder)
    return removed


def _witnessed_now(events_dir: Path, days: float, clock: Clock | None) -> float:
    path = EventFolder(events_dir).archive / "clock"
    newest = 0.0
    if not path.exists() and (files := archived_files(events_dir)):
        newest = files[-1].at.timestamp()
    witnessed = LeapSafeClock(
        path, limit_seconds=days * 86400, gap_seconds=LEAP_SECONDS, clock=clock, newest=newest
    )
    now = witnessed.now()
    try:
        make_folder(path.parent)
        witnessed.save(now=True)
    except OSError as error:
        logger.error("The time could not be recorded in %s: %s", path, error)
    return now


def _remove_day(folder: Path) -> int:
    """Remove the files of a day; a folder among them is not ours, and stays with the day's folder."""
    removed = 0
    try:
        for path in folder.iterdir():
            if not path.is_dir():
                path.unlink(missing_ok=True)
                removed += path.suffix == ".gz"
    except FileNotFoundError:
        return removed  # another pipeline was faster
    except OSError as error:
        logger.error("%s could not be removed: %s", folder, error)
    with contextlib.suppress(OSError):  # not empty, or removed by another pipeline
        folder.rmdir()
    return removed
