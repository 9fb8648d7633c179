"""What the next rows of a batch destination wait for, and until when: for `headwater status` and the page."""

from __future__ import annotations

import msgspec

from headwater.log.files.event_counts import EventsStat, TokenStat
from headwater.log.files.file_status import STOPPED
from headwater.log.files.incoming import FIRST_ROTATION_SECONDS
from headwater.settings import Settings


class Awaited(msgspec.Struct):
    """Event files that are not complete, or not loaded, and what the pipeline does.

    A file is complete `first_seconds` after its first event, in a steady flow `longest_seconds`. `doing` is
    empty where no pipeline runs.
    """

    open_files: list[TokenStat]
    complete_files: int
    first_seconds: float
    longest_seconds: float
    doing: str
    since: float


def awaited(settings: Settings, events: EventsStat) -> Awaited | None:
    """What is on its way to the tables; None where nothing is, or no destination loads files."""
    if not any(destination.is_batch for destination in settings.destinations):
        return None
    open_files = [token for token in events.tokens if token.active_bytes]
    complete_files = sum(token.waiting_files for token in events.tokens) + events.replays
    if not open_files and not complete_files:
        return None
    longest = settings.events.rotation_minutes * 60
    now = events.pipeline
    is_running = now is not None and now.doing != STOPPED
    return Awaited(
        open_files,
        complete_files,
        min(FIRST_ROTATION_SECONDS, longest),
        longest,
        now.doing if now is not None and is_running else "",
        now.at if now is not None else 0.0,
    )
