"""Events as they arrive, from the log, the queues of streams and the incoming files of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from headwater.clock import Clock, SystemClock
from headwater.graph.ingest.untrusted_json import items, mapping
from headwater.log.files.checked_lines import read_line
from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import export, tail_of
from headwater.page.templates import pretty, strip_control_characters

HISTORY_EVENTS = 30  # earlier events of the log, and of each queue, for a new viewer
HISTORY_BYTES = 16 * 1024  # of each file of events
READ_BYTES = 256 * 1024  # of a file at once; the rest is skipped and counted
MAX_EVENTS = 100  # of one poll, the newest
MAX_BODY = 8_000  # characters that are shown of one event
# Fields that the gateway adds.
CONTEXT = {"source_ip", "_timestamp", "api_key", "src", "eventn_ctx", "user_agent"}
TITLE_FIELDS = ("event_type", "event", "type", "name", "action")


class TailedEvent(msgspec.Struct):
    """An event that arrived: its file, a title and a note for the list, and its text.

    `key` is the same whenever the event is sent, so that a viewer that connects again counts it once.
    """

    key: str
    at: float
    source: str
    title: str
    note: str
    body: str


class EventTail:
    """The read positions of one viewer in all its sources; used by one thread at a time."""

    def __init__(self, log_folder: Path, events_dir: Path, *, clock: Clock | None = None) -> None:
        self._log = log_folder
        self._events = EventFolder(events_dir)
        self._clock = clock or SystemClock()
        self._positions: dict[Path, int] = {}
        self._offsets: dict[str, tuple[int, int]] = {}  # token: inode of its file, bytes read of it
        self._is_new = True

    def poll(self) -> tuple[list[TailedEvent], int]:
        """The events since the last poll, oldest first, and how many were skipped."""
        found = list(self._from_log(self._log, "lineage"))
        for id, queue in self._events.queues().items():
            found += self._from_log(queue, f"queue {id}")
        skipped = 0
        for token, path in self._events.active_files().items():
            events, missed = self._from_file(token, path)
            found += events
            skipped += missed
        self._is_new = False
        found.sort(key=lambda event: event.at)
        return found[-MAX_EVENTS:], skipped + max(0, len(found) - MAX_EVENTS)

    def _from_log(self, folder: Path, source: str) -> Iterator[TailedEvent]:
        end = tail_of(folder)
        first = self._positions.get(folder, max(1, end - HISTORY_EVENTS) if self._is_new else 1)
        self._positions[folder] = max(first, end)
        if end - first > 10 * MAX_EVENTS:  # only the newest
            first = end - MAX_EVENTS
        if first < end:
            for event in export(folder, first, end - 1):
                yield _tailed(f"{source} {event.position}", event.received_at, source, event.body)

    def _from_file(self, token: str, path: Path) -> tuple[list[TailedEvent], int]:
        try:
            with path.open("rb") as file:
                status = path.stat()
                inode, offset = self._offsets.get(token, (0, 0))
                if inode != status.st_ino:  # rotated, or read for the first time
                    offset = max(0, status.st_size - HISTORY_BYTES) if self._is_new else 0
                start = max(offset, status.st_size - READ_BYTES)
                file.seek(start)
                content = file.read(READ_BYTES)
        except OSError:
            return [], 0  # rotated meanwhile; the next poll reads the new file
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[token] = (status.st_ino, start + len(whole))
        lines = []
        for line in re.findall(rb"[^\n]*\n", whole):
            lines.append((f"{token} {status.st_ino} {start}", line.rstrip(b"\n")))
            start += len(line)
        start -= len(whole)
        if start and (start > offset or self._is_new):
            lines = lines[1:]  # the first line is incomplete
        missed = int(start > offset)
        shown = lines[-MAX_EVENTS:]
        at = self._clock.now()
        events = [_tailed(key, at, f"token {token}", read_line(line).event) for key, line in shown]
        return events, missed + len(lines) - len(shown)


def _tailed(key: str, at: float, source: str, body: bytes) -> TailedEvent:
    title, note = "", ""
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        title = body[:80].decode(errors="replace")
    else:
        if isinstance(event, dict):
            title, note = _lineage_summary(event) if "producer" in event else _event_summary(event)
    return TailedEvent(
        key,
        at,
        source,
        strip_control_characters(title[:200]),
        strip_control_characters(note[:300]),
        pretty(body, MAX_BODY),
    )


def _lineage_summary(event: dict[str, Any]) -> tuple[str, str]:
    job, item = mapping(event.get("job")), mapping(event.get("dataset"))
    kind = event.get("eventType") or ("DATASET" if item else "JOB")
    reads, writes = (", ".join(_names(event.get(key))) for key in ("inputs", "outputs"))
    return (
        f"{kind} {job.get('name') or item.get('name') or ''}",
        f"{reads} → {writes}" if reads or writes else "",
    )


def _names(datasets: object) -> list[str]:
    found = [str(dataset.get("name", "")) for dataset in items(datasets)]
    return found[:4] + ([f"{len(found) - 4} more"] if len(found) > 4 else [])


def _event_summary(event: dict[str, Any]) -> tuple[str, str]:
    named = next(
        (event[word] for word in TITLE_FIELDS if isinstance(event.get(word), str) and event[word]), "event"
    )
    own = {key: value for key, value in event.items() if key not in TITLE_FIELDS and key not in CONTEXT}
    return str(named), " · ".join(f"{key} {_brief(value)}" for key, value in list(own.items())[:8])


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return str(value)[:40]
