"""The settings of the last start, compared with the present ones: what waits must not be passed over.

A server that starts with other settings could drop events a second later, or never look at them again. It
refuses instead, and names the command that says so on purpose. `headwater check` finds the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from headwater.errors import LogUnavailable
from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.log.files.layout import EventFolder
from headwater.log.orphans import waiting_in
from headwater.log.queue.offline import LogStat, stat
from headwater.log.queue.partitions import HOUR_SECONDS
from headwater.log.queue.retention import removals
from headwater.log.rejects.rejects import rejects_path
from headwater.log.rejects.store import RejectReader
from headwater.settings import LogSettings, Settings
from headwater.system.durable_files import replace

NAME = "last-start.json"


class LastStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a server noted when it started."""

    outlets: list[str]
    retention_hours: float
    retention_bytes: int
    events_dir: str

    @classmethod
    def of(cls, settings: Settings) -> LastStart:
        return cls(
            outlets=sorted(outlet.name for outlet in settings.outlets),
            retention_hours=settings.log.retention_hours,
            retention_bytes=settings.log.retention_bytes,
            events_dir=str(settings.events_dir.resolve()),
        )

    @classmethod
    def load(cls, data_dir: Path) -> LastStart | None:
        """What the last server noted; None if none did, or its file is damaged: nothing is compared then."""
        try:
            return _DECODER.decode(checked((data_dir / NAME).read_bytes()))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def save(self, data_dir: Path) -> None:
        """Replace the file atomically, if it has something else."""
        if LastStart.load(data_dir) != self:
            replace(data_dir / NAME, with_checksum(msgspec.json.encode(self)))


_DECODER = json_decoder(LastStart)


def losing_changes(settings: Settings, last: LastStart | None) -> Iterator[str]:
    """Yield a line for each change since the last start by which waiting events would be passed over."""
    if last is None:
        return
    folder = Path(settings.data_dir) / "log"
    if folder.is_dir():
        found = stat(folder)
        yield from outlets_gone(found, {outlet.name for outlet in settings.outlets}, set(last.outlets))
        yield from _of_retention(found, settings, last)
    before, now = Path(last.events_dir), settings.events_dir.resolve()
    if before != now and before.is_dir() and (waiting := _waiting(before)):
        yield (
            f"{waiting} wait in {before}, where `events.dir` was at the last start; it is {now} now. Stop "
            f"the pipeline and move the folder: mv {before} {now}; or set `events.dir: {before}` again"
        )


def outlets_gone(found: LogStat, outlets: set[str], before: set[str]) -> Iterator[str]:
    """Yield a line for each outlet of `before` that is not one of `outlets`, and for which events wait."""
    for reader in found.readers:
        if reader.lag_events and reader.name in before - outlets:
            yield (
                f"{reader.lag_events:,} event(s) wait for the outlet {reader.name}, which the settings do "
                f"not have any more. If it has another name now: headwater log rename {reader.name} "
                f"NEW_NAME; if its events are not wanted: headwater log forget {reader.name}"
            )


def _of_retention(found: LogStat, settings: Settings, last: LastStart) -> Iterator[str]:
    now = settings.log
    lowered = [
        f"`log.{name}` was {getattr(last, name):g} and is {getattr(now, name):g}"
        for name in ("retention_hours", "retention_bytes")
        if getattr(now, name) < getattr(last, name)
    ]
    if lowered and (refused := rejects_beyond(settings)):
        yield (
            f"{', '.join(lowered)}: {refused:,} reject(s) of outlets, whose events were acknowledged, are "
            "beyond it, and would be dropped. Raise it again until they are replayed, or drop them: "
            "headwater log trim"
        )
    if lowered and (lost := events_beyond(found, now)):
        yield (
            f"{', '.join(lowered)}: {lost:,} event(s) that are not delivered yet are beyond it, and would be "
            "dropped. Raise it again until they are delivered, or drop them: headwater log trim"
        )


def events_beyond(found: LogStat, settings: LogSettings) -> int:
    """How many events that a reader has not finished a collection with these settings would drop."""
    lowest = min((reader.position for reader in found.readers), default=0)
    # the wall clock, which the log may not trust yet: what it drops later is refused now
    chosen = removals(found.partitions, [reader.position for reader in found.readers], settings, time.time())
    return sum(
        max(0, each.partition.end - max(each.partition.first, lowest))
        for each in chosen
        if each.reason != "passed"
    )


def rejects_beyond(settings: Settings) -> int:
    """How many rejects of acknowledged events a server with these settings would drop."""
    if not (path := rejects_path(settings)).exists():
        return 0
    limits = settings.log
    before = time.time() - limits.retention_hours * HOUR_SECONDS
    try:
        with closing(RejectReader(path)) as rejects:
            return rejects.beyond(limits.retention_bytes, before)
    except LogUnavailable:  # damaged: the server sets it aside
        return 0


def _waiting(events_dir: Path) -> str:
    folder = EventFolder(events_dir)
    files = len(folder.rotated_files()) + len(folder.active_files())
    events = sum(map(waiting_in, folder.queues().values()))
    return " and ".join(
        [f"{files:,} event file(s)"] * bool(files) + [f"{events:,} event(s) of queues"] * bool(events)
    )
