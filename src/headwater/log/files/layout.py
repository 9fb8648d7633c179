"""The files in which events wait for the pipeline: their folders and names.

events/incoming/incoming.tok=<token>.log                             being written
events/incoming/incoming.tok=<token>-2026-11-16T10-00-00.000.log     complete, waits for the pipeline
events/incoming/incoming.tok=<token>-….log.status                    what became of it so far
events/archive/2026-11-16/incoming.tok=<token>-….log.gz              done
events/failed/failed.dst=<destination>.log                           rejects of a destination
events/failed/failed.dst=<destination>-….log                         rejects that are to be tried again
events/queue.dst=<destination>/                                      waits for a stream destination
events/archive/2026-11-16/streaming-archive.dst=<destination>-….log.gz   done by stream
"""

from __future__ import annotations

import hashlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["incoming", "failed"]
ArchivedKind = Literal["incoming", "failed", "streaming-archive"]

_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_STAMP = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}"
_ROTATED = re.compile(rf"(?:(incoming)\.tok|(failed)\.dst)=({_ID})-({_STAMP})\.log")
_ACTIVE = re.compile(rf"incoming\.tok=({_ID})\.log")
_ERRORS = re.compile(rf"failed\.dst=({_ID})\.log")
_DROPPED = re.compile(rf"failed\.dst=({_ID})\.dropped")
_QUEUE = re.compile(rf"queue\.dst=({_ID})")
_ARCHIVED = re.compile(rf"(?:(incoming)\.tok|(streaming-archive|failed)\.dst)=({_ID})-({_STAMP})\.log\.gz")
_IDENTITY_BYTES = 64 * 1024


def _checked(id: str) -> str:
    """The id, which may be part of a file name; settings refuse any other (G12)."""
    if re.fullmatch(_ID, id) is None:
        raise ValueError(f"{id!r} cannot be part of a file name")
    return id


def rotated_id(name: str) -> str:
    """The token or destination in the name of a complete file, which a suffix may follow."""
    match = _ROTATED.match(name)
    return match[3] if match else ""


class EventFolder:
    """The folder of the settings (`Settings.events_dir`) and its parts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.incoming = path / "incoming"
        self.archive = path / "archive"
        self.failed = path / "failed"

    def make(self) -> None:
        """Create the folders that are missing."""
        for folder in (self.incoming, self.archive, self.failed):
            folder.mkdir(parents=True, exist_ok=True)

    def active(self, token_id: str) -> Path:
        """The file that a token's events are being written to."""
        return self.incoming / f"incoming.tok={_checked(token_id)}.log"

    def errors(self, destination_id: str) -> Path:
        """The file of a destination's rejects."""
        return self.failed / f"failed.dst={_checked(destination_id)}.log"

    def queue(self, destination_id: str) -> Path:
        """The folder of a stream destination's queue."""
        return self.path / f"queue.dst={_checked(destination_id)}"

    def queues(self) -> dict[str, Path]:
        """All queues, by destination."""
        return {match[1]: path for path, match in _matching(self.path, _QUEUE) if path.is_dir()}

    def active_files(self) -> dict[str, Path]:
        """All files that are being written, or were when their writer died, by token."""
        return {match[1]: path for path, match in _matching(self.incoming, _ACTIVE)}

    def error_files(self) -> dict[str, Path]:
        """All files of rejects, by destination."""
        return {match[1]: path for path, match in _matching(self.failed, _ERRORS)}

    def dropped_files(self) -> list[Path]:
        """The files of rejects, there or not, of which some were dropped."""
        return [path.with_suffix(".log") for path, _ in _matching(self.failed, _DROPPED)]

    def rotated_files(self) -> list[IncomingFile]:
        """All files that wait for the pipeline, oldest first."""
        found: list[IncomingFile] = []
        for folder in (self.incoming, self.failed):
            for path, match in _matching(folder, _ROTATED):
                kind: Kind = "incoming" if match[1] else "failed"
                if folder.name == kind and (at := _read_stamp(match[4])) is not None:
                    found.append(IncomingFile(path, kind, match[3], at))
        return sorted(found, key=lambda file: (file.rotated_at, file.path.name))


class IncomingFile(NamedTuple):
    """A complete file of events, one JSON object a line, which is no longer written.

    `kind` is `incoming` (`id` is the token's; it goes to all destinations that want the token) or `failed`
    (`id` is a destination's; rejects that are tried again, for that destination alone).
    """

    path: Path
    kind: Kind
    id: str
    rotated_at: datetime

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def token_id(self) -> str:
        """The token, or nothing for rejects that are tried again."""
        return self.id if self.kind == "incoming" else ""

    @property
    def destination_id(self) -> str:
        """The only destination that it is for, or nothing if it is for all."""
        return self.id if self.kind == "failed" else ""

    @property
    def folder(self) -> EventFolder:
        return EventFolder(self.path.parent.parent)

    @property
    def status_path(self) -> Path:
        return status_path(self.path)

    @property
    def archive_path(self) -> Path:
        """The file's path in the archive."""
        return self.folder.archive / self.rotated_at.strftime("%Y-%m-%d") / f"{self.name}.gz"

    def identity(self) -> str:
        """A text that no other file has had, wherever this one lies.

        Not the name alone: a machine whose clock was set back may use a name again, and a ledger that knew
        the name would take the new events for loaded ones.
        """
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.sha256(f"{self.name}\0{size}\0".encode())
            file.seek(0)
            digest.update(file.read(_IDENTITY_BYTES))
            file.seek(max(0, size - _IDENTITY_BYTES))
            digest.update(file.read(_IDENTITY_BYTES))
        return digest.hexdigest()


def status_path(path: Path) -> Path:
    """The status beside a complete file or a file of the archive."""
    return path.with_name(f"{path.name.removesuffix('.gz')}.status")


def unprocessed(events_dir: Path) -> list[IncomingFile]:
    """The files that wait for the pipeline, oldest first, rejects that are to be tried again among them."""
    return EventFolder(events_dir).rotated_files()


class ArchivedFile(NamedTuple):
    """A file of the archive: `id` is the token's or the destination's in its name."""

    path: Path
    kind: ArchivedKind
    id: str
    at: datetime


def archived_files(events_dir: Path) -> list[ArchivedFile]:
    """All files of the archive, oldest first."""
    found: list[ArchivedFile] = []
    for day in sorted(EventFolder(events_dir).archive.glob("????-??-??")):
        for path, match in _matching(day, _ARCHIVED):
            kind: ArchivedKind = "incoming" if match[1] else "failed"
            if match[2] == "streaming-archive":
                kind = "streaming-archive"
            if (at := _read_stamp(match[4])) is not None:
                found.append(ArchivedFile(path, kind, match[3], at))
    return sorted(found, key=lambda file: (file.at, file.path.name))


def rotated_name(kind: ArchivedKind, id: str, at: datetime) -> str:
    """The name of a complete file. Times are UTC, to the millisecond."""
    stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%S.") + f"{at.microsecond // 1000:03d}"
    return f"{kind}.{'tok' if kind == 'incoming' else 'dst'}={id}-{stamp}.log"


def _read_stamp(text: str) -> datetime | None:
    try:
        return datetime.strptime(text + "000", "%Y-%m-%dT%H-%M-%S.%f").replace(tzinfo=UTC)
    except ValueError:  # the 45th of a month: not a file of ours
        return None


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = ((name, pattern.fullmatch(name)) for name in sorted(names))
    return [(folder / name, match) for name, match in found if match is not None]
