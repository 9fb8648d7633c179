"""How far a stream destination is: kept beside its queue by the pipeline, read by the gateway.

The queue belongs to the gateway's process and the pipeline never writes to it. The pipeline keeps its own
state in `queue.dst=<destination>/stream/cursor.json`; the gateway looks there and collects what is behind.

What makes a load happen once (G5): before a micro-batch is loaded, its end is written down (`planned`). After
a crash the same positions are loaded again under the same name, and the destination's ledger knows those that
had arrived.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from headwater.durable_files import replace
from headwater.json_decoder import json_decoder
from headwater.log.queue.partition_file import partition_paths

log = logging.getLogger(__name__)


def stream_folder(queue: Path) -> Path:
    """Where the pipeline keeps its own files of a queue."""
    return queue / "stream"


class Planned(msgspec.Struct):
    """A micro-batch that was begun: it ends before `end`.

    `split` are the pieces (table, first, end) that were refused whole and are loaded in halves: a repeated
    load must cut in the same places.
    """

    end: int
    split: list[tuple[str, int, int]] = []


class StreamCursor(msgspec.Struct, kw_only=True):
    """Everything below `position` is done: rows, skipped, rejected, or missing from the queue (G3).

    Everything below `archived` is in the archive too, and may be collected.
    """

    queue: str
    """Which queue this is about: one that was removed and made again has another name and other events."""
    position: int
    archived: int
    planned: Planned | None = None
    archive_name: str = ""
    """The file that positions up to `archive_end` are being written to."""
    archive_end: int = 0
    batches: int = 0
    rows: int = 0
    skipped: int = 0
    rejected: int = 0
    unmapped: int = 0
    missing: int = 0
    at: float = 0.0
    error: str = ""
    """Why it does not move, if it does not."""

    @property
    def events(self) -> int:
        return self.rows + self.skipped + self.rejected

    @classmethod
    def load(cls, queue: Path, identity: str, oldest: int | None = None) -> StreamCursor:
        """The cursor of the queue; a new one stands at the oldest event that is kept."""
        path = _path(queue)
        try:
            found = _DECODER.decode(path.read_bytes())
            if found.queue == identity:
                return found
            log.warning("%s is the cursor of another queue; this one begins at its oldest event.", path)
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("%s is damaged (%s); the queue begins at its oldest event.", path, error)
        paths = partition_paths(queue)
        first = oldest or (int(paths[0].stem) if paths else 1)
        return cls(queue=identity, position=first, archived=first)

    @classmethod
    def peek(cls, queue: Path) -> StreamCursor | None:
        """What was last written down, for those who only look; None if there is nothing to be read."""
        try:
            return _DECODER.decode(_path(queue).read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def save(self, queue: Path) -> None:
        """Write it down, wholly or not at all, and wait until it is on disk."""
        replace(_path(queue), msgspec.json.encode(self))


_DECODER = json_decoder(StreamCursor)


def _path(queue: Path) -> Path:
    return stream_folder(queue) / "cursor.json"
