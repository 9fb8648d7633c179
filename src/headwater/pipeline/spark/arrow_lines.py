"""Event bodies as Arrow arrays."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from headwater.log.queue.commit_format import Commit

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_texts(bodies: Sequence[bytes], *, binary: bool = False) -> pa.Array:
    """The bodies as one Arrow array of strings, or of bytes.

    Not by `pa.array()`: it copies each body once more and checks for UTF-8, which Spark's text source does
    not do either.
    """
    import pyarrow as pa

    ends = array("i", accumulate(map(len, bodies), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))]
    return pa.Array.from_buffers(pa.binary() if binary else pa.string(), len(bodies), buffers)


def arrow_positions(commits: Sequence[Commit]) -> pa.Array:
    """The positions of the commits' events."""
    import pyarrow as pa

    numbers = array("q")
    for commit in commits:
        numbers.extend(range(commit.first, commit.end))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
