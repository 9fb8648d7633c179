"""How many rejects a file of them has: counted once, and then as the file grows, from memory."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import apsw

from headwater.log.files.checked_lines import Line, LineReader

CHUNK_BYTES = 1024 * 1024
HEAD_BYTES = 256  # of the first reject: it has a time and a source that no other has

Decode = Callable[[Line, int], tuple[str, str]]


class RejectCount:
    """The count of one file. Lines of equal source are one reject, at the place of the last of them.

    `decode` gives the source and the time of a line. Used by one thread at a time.
    """

    def __init__(self, path: Path, decode: Decode) -> None:
        self._path = path
        self._decode = decode
        self._begin(b"", 0)

    def _begin(self, head: bytes, inode: int) -> None:
        self._head, self._inode = head, inode
        self.bytes = 0
        self._cut = 0  # bytes that were removed from the front
        self._lines: LineReader | None = None
        # in a temporary file: a million rejects must not need a million texts in memory (G8)
        self._places = apsw.Connection("")
        self._places.execute("CREATE TABLE places (key INTEGER PRIMARY KEY, place INTEGER NOT NULL)")

    def look(self) -> int:
        """How many rejects the file has now; only what was appended since the last look is read."""
        try:
            with self._path.open("rb") as file:
                self._read_on(file)
        except FileNotFoundError:
            self._begin(b"", 0)
        return self._places.execute("SELECT count(*) FROM places").get  # type: ignore[no-any-return]

    def before(self, offset: int) -> int:
        """How many rejects lie before an offset, of those that the last look has counted."""
        sql = "SELECT count(*) FROM places WHERE place < ?"
        return self._places.execute(sql, (self._cut + offset,)).get  # type: ignore[no-any-return]

    def first_at(self, after: float = 0.0, *, until: int = 0) -> tuple[int, float]:
        """Offset and time of the first reject that is not from before a time, or lies at `until` or later."""
        offset = 0
        with self._path.open("rb") as file:
            for raw in file:
                if offset >= until and (at := self._time(raw)) >= after:
                    return offset, at
                offset += len(raw)
        return offset, math.inf

    def forget_first(self, offset: int) -> None:
        """The file was written again without what lies before an offset."""
        self._cut += offset
        self._places.execute("DELETE FROM places WHERE place < ?", (self._cut,))
        self.bytes = max(0, self.bytes - offset)
        with self._path.open("rb") as file:
            self._head, self._inode = file.read(HEAD_BYTES), os.fstat(file.fileno()).st_ino

    def _read_on(self, file: BinaryIO) -> None:
        stat = os.fstat(file.fileno())
        head = file.read(HEAD_BYTES)
        if stat.st_ino != self._inode or stat.st_size < self.bytes or not head.startswith(self._head):
            self._begin(head, stat.st_ino)
        self._head = head
        if stat.st_size == self.bytes:
            return
        if self._lines is None:
            self._lines = LineReader(self._path)
        file.seek(self.bytes)
        with self._places:
            while chunk := file.readlines(CHUNK_BYTES):
                if not chunk[-1].endswith(b"\n"):
                    del chunk[-1]
                self._count(self._lines, chunk)

    def _count(self, lines: LineReader, chunk: list[bytes]) -> None:
        for raw, line in zip(chunk, lines.read(chunk), strict=True):
            place = self._cut + self.bytes
            source, _ = self._decode(line, lines.lines)
            text = source or f"\0{place}"
            key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
            self._places.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (key, place))
            self.bytes += len(raw)

    def _time(self, raw: bytes) -> float:
        """The time of a reject; -1, older than any, if the line has none: it goes with its neighbours."""
        assert self._lines is not None
        reader = LineReader(self._path, is_checked=self._lines.is_checked)
        try:
            return datetime.fromisoformat(self._decode(reader.read([raw])[0], 1)[1]).timestamp()
        except ValueError:
            return -1.0
