"""The ids of loads of streams, which contain positions.

A load of positions `first` up to and without `end` has the id digest of the source, `end`, `first`, digest of
the table, all hexadecimal. So ids of one source are in the order of their ends, and the positions can be read
back from an id, even if the cursor of the stream is lost (G5).
"""

from __future__ import annotations

import re
from typing import NamedTuple

SOURCE_DIGITS, NUMBER_DIGITS = 32, 16
_FORM = re.compile("([0-9a-f]{32})([0-9a-f]{16})([0-9a-f]{16})([0-9a-f]{16})")


class StreamLoadId(NamedTuple):
    """The parts of an id; `source` and `table` are digests."""

    source: str
    end: int
    first: int
    table: str

    def __str__(self) -> str:
        return f"{self.source}{self.end:0{NUMBER_DIGITS}x}{self.first:0{NUMBER_DIGITS}x}{self.table}"


def parse_stream_id(id: str) -> StreamLoadId | None:
    """The parts of a load id; None for the id of another load."""
    found = _FORM.fullmatch(id)
    if found is None:
        return None
    source, end, first, table = found.groups()
    return StreamLoadId(source, int(end, 16), int(first, 16), table)
