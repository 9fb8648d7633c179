"""A file of the archive, unpacked, and which of its events are selected."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.log.files.checked_lines import CHUNK_BYTES, Line, LineReader, open_lines
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import ArchivedFile, IncomingFile, status_path
from headwater.pipeline.batch.archived_ranges import Place, Places

TOKEN = "archive"  # noqa: S105


class _Selected(msgspec.Struct):
    """The fields that select an event."""

    timestamp: object = msgspec.field(name="_timestamp", default=None)
    api_key: object = None


class Selection(NamedTuple):
    """Which events of the archive are loaded."""

    since: datetime
    until: datetime | None
    former: Collection[str] = ()
    """Ids or client secrets that tokens of the destination had before."""


class UnpackedFile:
    """A file of the archive, unpacked into a folder, and which of its events are selected."""

    def __init__(
        self,
        file: ArchivedFile,
        path: Path,
        selection: Selection,
        *,
        is_own: bool,
        senders: set[object] | None = None,
        leave_out: Container[bytes] = (),
    ) -> None:
        """`senders` are the wanted values of `api_key`, None all; events of `leave_out` are not selected."""
        self.file, self.path = file, path
        self.status = FileStatus.read(status_path(file.path))
        self.is_own = is_own
        self.selected = self.lines = self.left_out = 0
        self.keys: set[str] = set()
        self.identity = ""
        self.damage = ""
        self._selection = selection
        self._senders, self._leave_out = senders, leave_out
        self._is_checked = True if self.status.written is not None else None
        self._decoder = msgspec.json.Decoder(_Selected)

    @property
    def is_whole(self) -> bool:
        """Whether all events are selected."""
        return self.selected == self.lines

    def unpack(self) -> None:
        """Write all lines to `path`, count those that are selected, and note where the events lie."""
        reader = LineReader(self.file.path, is_checked=self._is_checked)
        with open_lines(self.file.path) as packed, self.path.open("wb") as unpacked:
            while chunk := packed.readlines(CHUNK_BYTES):
                unpacked.writelines(chunk)
                for line in reader.read(chunk):
                    self.lines += 1
                    selected, sender = self._select(line)
                    is_left_out = selected and line.event in self._leave_out
                    self.left_out += is_left_out
                    self.selected += selected and not is_left_out
                    self.keys.add(sender)
        self.damage = reader.problem(self.status.written)
        self.identity = IncomingFile(self.path, "incoming", TOKEN, self.file.at).identity()
        places = self._places()
        self.keys = {places.next(sender).key for sender in self.keys}

    def events(self) -> Iterator[tuple[Place, bytes]]:
        """The selected events with their places."""
        places = self._places()
        reader = LineReader(self.path, is_checked=self._is_checked)
        with self.path.open("rb") as file:
            while chunk := file.readlines(CHUNK_BYTES):
                for line in reader.read(chunk):
                    selected, sender = self._select(line)
                    place = places.next(sender)
                    if selected and line.event not in self._leave_out:
                        # a damaged line is no event, whatever its bytes are by now
                        yield place, (b"damaged: " if line.is_damaged else b"") + line.event.rstrip(b"\n")

    def _places(self) -> Places:
        by_sender = self.file.kind != "incoming" and not self.is_own
        return Places(self.identity, self.status, is_own=self.is_own, by_sender=by_sender)

    def _select(self, line: Line) -> tuple[bool, str]:
        """Whether an event is selected, and its sender. Malformed and damaged lines always are."""
        try:
            found = _Selected() if line.is_damaged else self._decoder.decode(line.event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = _Selected()
        sender = found.api_key if isinstance(found.api_key, str) else ""
        at = _time(found.timestamp)
        since, until, _ = self._selection
        if at is not None and (at < since or (until is not None and at >= until)):
            return False, sender
        is_wanted = self._senders is None or found.api_key in self._senders
        return is_wanted, sender


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
