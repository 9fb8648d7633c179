"""The tail: events as they come in, read from the files that keep them, beside whoever writes those."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from headwater.clock import Clock, SystemClock
from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import export, tail_of
from headwater.page.templating import clean, pretty

__all__ = ["Arrival", "Tail"]

BACK = 30  # lineage events of before that a new looker is shown
BACK_BYTES = 16 * 1024  # of each file of events
READ_BYTES = 256 * 1024  # of a file at once; what is beyond is passed over, and said so
MOST = 100  # events that one look tells; of more, the newest
BODY = 8_000  # characters that are shown of one event
CONTEXT = {"source_ip", "_timestamp", "api_key", "src", "eventn_ctx", "user_agent"}  # what the gateway adds
WORDS = ("event_type", "event", "type", "name", "action")


class Arrival(msgspec.Struct):
    """An event that came in: where it is kept, a line about it, and its text."""

    at: float
    source: str
    title: str
    note: str
    body: str


class Tail:
    """One looker's place in all files. Not for several threads at once."""

    def __init__(self, log_folder: Path, events_dir: Path, *, clock: Clock | None = None) -> None:
        self._log = log_folder
        self._events = EventFolder(events_dir)
        self._clock = clock or SystemClock()
        self._positions: dict[Path, int] = {}
        self._offsets: dict[str, tuple[int, int]] = {}  # token: inode of its file, bytes read of it
        self._is_new = True

    def look(self) -> tuple[list[Arrival], int]:
        """What came since the last look, oldest first, and how many more there were than are told."""
        found = list(self._of_log(self._log, "lineage"))
        for id, queue in self._events.queues().items():
            found += self._of_log(queue, f"queue {id}")
        passed = 0
        for token, path in self._events.active_files().items():
            arrivals, missed = self._of_file(token, path)
            found += arrivals
            passed += missed
        self._is_new = False
        found.sort(key=lambda arrival: arrival.at)
        return found[-MOST:], passed + max(0, len(found) - MOST)

    def _of_log(self, folder: Path, source: str) -> Iterator[Arrival]:
        end = tail_of(folder)
        first = self._positions.get(folder, max(1, end - BACK) if self._is_new else 1)
        self._positions[folder] = max(first, end)
        if end - first > 10 * MOST:  # rather the newest than everything
            first = end - MOST
        if first < end:
            for event in export(folder, first, end - 1):
                yield _arrival(event.received_at, source, event.body)

    def _of_file(self, token: str, path: Path) -> tuple[list[Arrival], int]:
        try:
            with path.open("rb") as file:
                status = path.stat()
                inode, offset = self._offsets.get(token, (0, 0))
                if inode != status.st_ino:  # it was rotated, or is seen for the first time
                    offset = max(0, status.st_size - BACK_BYTES) if self._is_new else 0
                start = max(offset, status.st_size - READ_BYTES)
                file.seek(start)
                content = file.read(READ_BYTES)
        except OSError:
            return [], 0  # it was rotated under our eyes; the next look finds the new one
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[token] = (status.st_ino, start + len(whole))
        lines = whole.split(b"\n")[:-1]
        if start and (start > offset or self._is_new):
            lines = lines[1:]  # the first is only the end of one
        missed = int(start > offset)
        shown = lines[-MOST:]
        at = self._clock.now()
        return [_arrival(at, f"token {token}", line) for line in shown], missed + len(lines) - len(shown)


def _arrival(at: float, source: str, body: bytes) -> Arrival:
    title, note = "", ""
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        title = body[:80].decode(errors="replace")
    else:
        if isinstance(event, dict):
            title, note = _lineage(event) if "producer" in event else _event(event)
    return Arrival(at, source, clean(title[:200]), clean(note[:300]), pretty(body, BODY))


def _lineage(event: dict[str, Any]) -> tuple[str, str]:
    job, item = _part(event, "job"), _part(event, "dataset")
    kind = event.get("eventType") or ("DATASET" if item else "JOB")
    reads, writes = (", ".join(_names(event.get(way))) for way in ("inputs", "outputs"))
    return (
        f"{kind} {job.get('name') or item.get('name') or ''}",
        f"{reads} → {writes}" if reads or writes else "",
    )


def _part(event: dict[str, Any], key: str) -> dict[str, Any]:
    found = event.get(key)
    return found if isinstance(found, dict) else {}


def _names(datasets: object) -> list[str]:
    found = (
        [str(each.get("name", "")) for each in datasets if isinstance(each, dict)]
        if isinstance(datasets, list)
        else []
    )
    return found[:4] + ([f"{len(found) - 4} more"] if len(found) > 4 else [])


def _event(event: dict[str, Any]) -> tuple[str, str]:
    named = next((event[word] for word in WORDS if isinstance(event.get(word), str) and event[word]), "event")
    own = {key: value for key, value in event.items() if key not in WORDS and key not in CONTEXT}
    return str(named), " · ".join(f"{key} {_brief(value)}" for key, value in list(own.items())[:8])


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return str(value)[:40]
