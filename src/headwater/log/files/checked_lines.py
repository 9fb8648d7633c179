"""Lines of events with a checksum each: the event, a tab, its CRC-32 as eight hex digits.

The checksum stands behind the event and not in it: the event's bytes stay as they came, a line that is not
JSON can have one too, and Spark parses the line as it is. Files of releases before it have lines without one;
a file is of one kind, so in a file with checksums a line without one is damaged.
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

try:  # a tenth of the time of zlib's; it comes with headwater[pipeline]
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

DAMAGED = "damaged on disk: the line does not match its checksum"
SUFFIX_BYTES = 9
_SUFFIX = re.compile(rb"\t[0-9a-f]{8}")
_SAMPLE_BYTES = 64 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class Written(msgspec.Struct, frozen=True):
    """The number of lines of a complete file, and the CRC-32 of their checksums in order."""

    lines: int
    digest: int


class Line(NamedTuple):
    """A line as it is read: the event, or for a damaged line all of its bytes; and the checksum of these."""

    event: bytes
    checksum: int
    is_damaged: bool = False


class LineWriter:
    """Makes lines, and counts those that were written."""

    def __init__(self) -> None:
        self._lines = 0
        self._digest = 0

    def lines(self, events: Iterable[bytes]) -> tuple[bytes, Sequence[int]]:
        """The events as lines, and their checksums for `wrote`."""
        parts: list[bytes] = []
        sums: list[int] = []
        for event in events:
            sums.append(checksum := crc32(event))
            parts += (event, b"\t%08x\n" % checksum)
        return b"".join(parts), sums

    def unchecked(self, line: bytes) -> tuple[bytes, Sequence[int]]:
        """A damaged line as it was read, which has no correct checksum."""
        return line + b"\n", [crc32(line)]

    def wrote(self, sums: Sequence[int]) -> None:
        """Count lines that are on disk."""
        self._lines += len(sums)
        self._digest = _digest(sums, self._digest)

    @property
    def written(self) -> Written:
        return Written(self._lines, self._digest)


def checked_line(event: bytes) -> bytes:
    """An event as a line with its checksum."""
    return b"%b\t%08x\n" % (event, crc32(event))


def read_line(line: bytes) -> Line:
    """A line of a file with checksums."""
    line = line.removesuffix(b"\n")
    event, suffix = line[:-SUFFIX_BYTES], line[-SUFFIX_BYTES:]
    if _SUFFIX.fullmatch(suffix) and (checksum := crc32(event)) == int(suffix[1:], 16):
        return Line(event, checksum)
    return Line(line, crc32(line), is_damaged=True)


class LineReader:
    """Reads the lines of a file and compares each with its checksum. `.gz` files are unpacked.

    When the last line was read, `damaged` and `problem` describe the file as it was found.
    """

    def __init__(self, path: Path, *, is_checked: bool | None = None, leaves_torn: bool = False) -> None:
        """`leaves_torn`: a last line without its end is not read, since it is being written."""
        self._path = path
        self._leaves_torn = leaves_torn
        self.is_checked = has_checksums(path) if is_checked is None else is_checked
        self.lines = 0
        self.damaged = 0
        self._digest = 0

    def __iter__(self) -> Iterator[Line]:
        with open_lines(self._path) as file:
            while chunk := file.readlines(CHUNK_BYTES):
                if self._leaves_torn and not chunk[-1].endswith(b"\n"):
                    del chunk[-1]
                yield from self.read(chunk)

    def read(self, chunk: Sequence[bytes]) -> list[Line]:
        """The next lines of the file, from their bytes."""
        if self.is_checked:
            found = [read_line(raw) for raw in chunk]
            self.damaged += sum(line.is_damaged for line in found)
            self._digest = _digest([line.checksum for line in found], self._digest)
        else:
            found = [Line(raw.removesuffix(b"\n"), 0) for raw in chunk]
        self.lines += len(found)
        return found

    def read_all(self) -> Written:
        """Read all lines; their number and the CRC-32 of their checksums."""
        for _ in self:
            pass
        return Written(self.lines, self._digest)

    def problem(self, written: Written | None) -> str:
        """The damage of the file, compared with the record of its completion; empty if there is none."""
        found = [f"{self.damaged:,} of {self.lines:,} lines are damaged"] if self.damaged else []
        if written is not None and written.lines != self.lines:
            found.append(f"{written.lines:,} lines were written, {self.lines:,} are there")
        elif written is not None and not found and written.digest != self._digest:
            found.append("its lines are not those that were written, or not in their order")
        return "; ".join(found)


def open_lines(path: Path) -> BinaryIO:
    """The file, unpacked if its name ends with `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def has_checksums(path: Path) -> bool:
    """Whether the lines of a file have checksums: whether the first or any of the last has a correct one."""
    with open_lines(path) as file:
        if _is_correct(file.readline(_LONGEST_LINE)):
            return True
        if path.suffix == ".gz":
            return any(map(_is_correct, file.readlines(_SAMPLE_BYTES)))
        size = file.seek(0, 2)
        file.seek(max(0, size - _SAMPLE_BYTES))
        return any(map(_is_correct, file.read().split(b"\n")))


def _is_correct(line: bytes) -> bool:
    return len(line) > SUFFIX_BYTES and not read_line(line).is_damaged


def _digest(sums: Sequence[int], start: int) -> int:
    return crc32(struct.pack(f"<{len(sums)}I", *sums), start)
