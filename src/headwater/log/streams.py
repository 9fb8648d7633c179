"""The queues of stream destinations, and how far each is loaded.

Each queue is a log in `events/queue.dst=<destination>/`. The gateway appends. The pipeline reads the files
from outside, never writes to them, and keeps its cursor beside them in `stream/cursor.json`. The gateway
reads the cursor and collects what is loaded and archived, and nothing else: an outage of a destination costs
disk, not events, and only its own queue grows (G7).

Each micro-batch is loaded once (G5): its end is recorded before it is loaded (`planned`). After a crash the
same positions are loaded again under the same name, and the destination's ledger knows the loaded ones.

A queue that is restored from a copy, or cloned, gives out positions again. Each opening of a queue therefore
begins an epoch, which its commits contain and the ledger's names too; the cursor knows the epochs of what is
done, and steps back to where the queue has other events (`agreed_position`).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from headwater.clock import Clock
from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.log.files.layout import EventFolder
from headwater.log.queue.commit_format import Commit
from headwater.log.queue.log import Log
from headwater.log.queue.offline import Finding, commits, stat, tail_line, verify
from headwater.log.queue.partition_file import partition_paths
from headwater.log.queue.reader import Reader
from headwater.metrics import Metrics
from headwater.settings import DestinationSettings, LogSettings
from headwater.system.durable_files import replace

logger = logging.getLogger(__name__)

STREAM_READER = "stream"
COLLECT_SECONDS = 1.0
NO_LIMIT_HOURS = 1e9
NO_LIMIT_BYTES = 1 << 62
KEPT_EPOCHS = 100  # that are archived: a restored queue has events of earlier epochs


def identity_of(queue: Path) -> str:
    """The id that the queue got when it was created; empty if it has none yet."""
    try:
        return (queue / "identity").read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def stream_folder(queue: Path) -> Path:
    """The folder in which the pipeline keeps its own files of a queue."""
    return queue / "stream"


class Planned(msgspec.Struct):
    """A micro-batch that was begun: it ends before `end`.

    `split` are the pieces (table, first, end) that were refused whole and are loaded in halves: a repeated
    load must cut in the same places, and name the same tables.
    """

    end: int
    split: list[tuple[str, int, int]] = []
    epoch: int = 0
    template: str = ""
    """`table_name_template`; empty in a plan of an earlier release."""


class StreamCursor(msgspec.Struct, kw_only=True):
    """Everything below `position` is done: rows, skipped, rejected, or missing from the queue (G3).

    Everything below `archived` is in the archive too, and may be collected.
    """

    queue: str
    """The id of the queue: one that was removed and created again has another id and other events."""
    position: int
    archived: int
    epochs: list[tuple[int, int]] = msgspec.field(default_factory=lambda: [(0, 0)])
    """Where each epoch of the positions that are done begins, and its number; 0 before there were epochs."""
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
    missing_at: float = 0.0
    """When the last of them were found to be missing."""
    at: float = 0.0
    error: str = ""
    """Why it does not move, if it does not."""

    @property
    def events(self) -> int:
        return self.rows + self.skipped + self.rejected

    def epoch_of(self, position: int) -> int | None:
        """The epoch of a position that is done; None if it is not known any more."""
        return next((epoch for first, epoch in reversed(self.epochs) if first <= position), None)

    def advance(self, end: int, epoch: int | None) -> None:
        """Note that the positions up to `end` are done; None: the queue has none of them any more."""
        if epoch is not None and self.epochs[-1][1] != epoch:
            begun = [each for each in self.epochs if each[0] < self.position]
            over = [n for n, each in enumerate(begun[1:]) if each[0] <= self.archived]
            self.epochs = [*begun[max(0, len(over) - KEPT_EPOCHS) :], (self.position, epoch)]
        self.position, self.planned = end, None

    def step_back(self, position: int) -> None:
        """Note that positions from this one on are not done: the queue has other events there, or none."""
        self.epochs = [each for each in self.epochs if each[0] < position] or [(0, 0)]
        self.position, self.planned = position, None
        self.archived = min(self.archived, position)
        if self.archive_end > self.archived:
            self.archive_name, self.archive_end = "", 0

    @classmethod
    def load(cls, queue: Path, identity: str, oldest: int | None = None) -> StreamCursor:
        """The cursor of the queue; a new one stands at the oldest event that is kept."""
        path = _path(queue)
        try:
            found = _DECODER.decode(checked(path.read_bytes()))
            if found.queue == identity:
                return found
            logger.warning("%s is the cursor of another queue; this one begins at its oldest event.", path)
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.error("%s is damaged (%s); the queue begins at its oldest event.", path, error)
        paths = partition_paths(queue)
        first = oldest or (int(paths[0].stem) if paths else 1)
        return cls(queue=identity, position=first, archived=first)

    @classmethod
    def peek(cls, queue: Path) -> StreamCursor | None:
        """The cursor as it was last saved, for readers; None if it is missing or damaged."""
        try:
            return _DECODER.decode(checked(_path(queue).read_bytes()))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def save(self, queue: Path) -> None:
        """Replace the file atomically, and wait until it is on disk."""
        replace(_path(queue), with_checksum(msgspec.json.encode(self)))


_DECODER = json_decoder(StreamCursor)


def _path(queue: Path) -> Path:
    return stream_folder(queue) / "cursor.json"


def topic_folders(queue: Path) -> list[Path]:
    """Where the cursors of the partitions of topics are, if Kafka feeds the destination."""
    return sorted(path for path in queue.glob("topic.*.*") if path.is_dir())


def verify_queue(queue: Path, progress: Callable[[int, int], None] | None = None) -> list[Finding]:
    """Read every event of a queue and its cursors, and list what is wrong."""
    found = verify(queue, progress) + _damaged_cursors(queue)
    return [Finding(f"{queue.name}/{each.file}", each.text) for each in found]


def damage_of(queue: Path) -> list[str]:
    """What is known to be damaged or missing in a queue without reading all of it."""
    return stat(queue).damaged + [f"{each.file}: {each.text}" for each in _damaged_cursors(queue)]


def _damaged_cursors(queue: Path) -> list[Finding]:
    paths = [_path(folder) for folder in (queue, *topic_folders(queue))]
    return [
        Finding(str(path.relative_to(queue)), "is damaged; the stream begins at the oldest event")
        for path in paths
        if path.exists() and StreamCursor.peek(path.parent.parent) is None
    ]


def agreed_position(queue: Path, cursor: StreamCursor, end: int) -> int:
    """The position below `end` up to which the queue has the events that the cursor is about.

    A queue and a cursor of different age have the same events up to some position, and others from there on;
    positions that the queue does not have any more agree with every cursor.
    """
    paths = partition_paths(queue)
    low, high = int(paths[0].stem) if paths else end, end
    while low < high:
        middle = (low + high) // 2
        found = _first_commit(queue, middle, high)
        if found is not None and found.epoch == cursor.epoch_of(found.first):
            low = found.first + 1
        else:
            high = middle
    return min(low, end) if _first_commit(queue, low, end) is not None else end


def _first_commit(queue: Path, first: int, end: int) -> Commit | None:
    return next(iter(commits(queue, first, end)), None)


class Queues:
    """The queues of all stream destinations, open for appending by this process alone."""

    def __init__(
        self,
        events_dir: Path,
        destinations: Iterable[DestinationSettings],
        settings: LogSettings | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        collect_seconds: float = COLLECT_SECONDS,
    ) -> None:
        kept = msgspec.structs.replace(
            settings or LogSettings(), retention_hours=NO_LIMIT_HOURS, retention_bytes=NO_LIMIT_BYTES
        )
        folder = EventFolder(events_dir)
        self._logs: dict[str, Log] = {}
        self._readers: dict[str, Reader] = {}
        self._collect_seconds = collect_seconds
        self._closing = threading.Event()
        with ExitStack() as undo:
            for destination in destinations:
                queue = folder.queue(destination.id)
                # Metrics of its own: the process's `log_*` metrics are those of the lineage log.
                errors = partial(_count_error, metrics or Metrics(), destination.id)
                opened = Log.open(queue, kept, clock=clock, metrics=Metrics(), on_commit_error=errors)
                undo.callback(opened.close)
                _prepare(queue, opened.end)
                self._logs[destination.id] = opened
                self._readers[destination.id] = opened.reader(STREAM_READER)
                if metrics is not None:
                    for reason in ("full", "io"):
                        metrics.counter("queue_commit_errors").begin(destination.id, reason)
                    lag = self._readers[destination.id].lag_events
                    metrics.gauge("queue_lag_events").set(lag, destination.id)
            undo.pop_all()
        self._collector = threading.Thread(target=self._run, name="queue-collector", daemon=True)
        self._collector.start()

    def log(self, destination_id: str) -> Log:
        """The queue of a destination."""
        return self._logs[destination_id]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._logs)

    @property
    def healthy(self) -> bool:
        """Whether no queue's last commit failed."""
        return all(each.healthy for each in self._logs.values())

    def collect_loaded(self) -> None:
        """Finish the positions that the pipeline has loaded and archived, so that they can be collected."""
        for id, reader in self._readers.items():
            queue = self._logs[id].folder
            cursor = StreamCursor.peek(queue)
            if cursor is None or cursor.queue != identity_of(queue):
                continue
            done = min(cursor.archived, self._logs[id].end)
            if done > reader.position:
                # a cursor that is newer than the queue is about other events
                done = agreed_position(queue, cursor, done)
                reader.finish(delivered=range(reader.position, done))

    def _run(self) -> None:
        while not self._closing.wait(self._collect_seconds):
            try:
                self.collect_loaded()
            except Exception:
                logger.exception("The progress of the pipeline could not be recorded; trying again.")

    def close(self) -> None:
        """Commit and answer pending appends, and unlock the folders."""
        self._closing.set()
        self._collector.join()
        for each in self._logs.values():
            each.close()


def _count_error(metrics: Metrics, destination: str, reason: str) -> None:
    metrics.counter("queue_commit_errors").add(1, destination, reason)


def _prepare(queue: Path, end: int) -> None:
    stream_folder(queue).mkdir(exist_ok=True)
    if not identity_of(queue):
        replace(queue / "identity", uuid.uuid4().hex.encode())
    # After a power cut the recorded end may be old, and readers in other processes rely on it.
    with (queue / "tail").open("r+b") as tail:
        tail.write(tail_line(end))
