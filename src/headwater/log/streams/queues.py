"""Queues of stream destinations: `events/queue.dst=<destination>/`, each a log of its own (seed 003).

The gateway appends; the pipeline reads the files from outside and keeps its cursor beside them. What the
pipeline has loaded and archived is collected; nothing else ever is: an outage of a destination costs disk,
not events, and only its own queue grows (G7).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from headwater.clock import Clock
from headwater.durable_files import replace
from headwater.errors import HeadwaterError
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import EventFolder
from headwater.log.queue.group_commit import Answer
from headwater.log.queue.log import Log
from headwater.log.queue.offline import tail_line
from headwater.log.queue.reader import Reader
from headwater.log.streams.stream_cursor import StreamCursor, stream_folder
from headwater.metrics import Metrics
from headwater.settings import DestinationSettings, LogSettings

__all__ = ["READER", "Multiplex", "Queues", "identity_of"]

log = logging.getLogger(__name__)

READER = "stream"
FOLLOW_SECONDS = 1.0
FOR_EVER_HOURS = 1e9
NO_LIMIT_BYTES = 1 << 62


def identity_of(queue: Path) -> str:
    """The name that the queue got when it was made; empty while there is none."""
    try:
        return (queue / "identity").read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


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
        follow_seconds: float = FOLLOW_SECONDS,
    ) -> None:
        kept = msgspec.structs.replace(
            settings or LogSettings(), retention_hours=FOR_EVER_HOURS, retention_bytes=NO_LIMIT_BYTES
        )
        folder = EventFolder(events_dir)
        self._logs: dict[str, Log] = {}
        self._readers: dict[str, Reader] = {}
        self._follow_seconds = follow_seconds
        self._closing = threading.Event()
        with ExitStack() as undo:
            for destination in destinations:
                queue = folder.queue(destination.id)
                # Numbers of its own: the gateway's are those of the sidecar's log.
                opened = Log.open(queue, kept, clock=clock, metrics=Metrics())
                undo.callback(opened.close)
                _prepare(queue, opened.end)
                self._logs[destination.id] = opened
                self._readers[destination.id] = opened.reader(READER)
                if metrics is not None:
                    lag = self._readers[destination.id].lag_events
                    metrics.gauge("queue_lag_events").set(lag, destination.id)
            undo.pop_all()
        self._follower = threading.Thread(target=self._follow, name="queue-follower", daemon=True)
        self._follower.start()

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

    def follow(self) -> None:
        """Let go of what the pipeline has loaded and archived."""
        for id, reader in self._readers.items():
            queue = self._logs[id].folder
            cursor = StreamCursor.peek(queue)
            if cursor is None or cursor.queue != identity_of(queue):
                continue
            done = min(cursor.archived, self._logs[id].end)
            if done > reader.position:
                reader.finish(delivered=range(reader.position, done))

    def _follow(self) -> None:
        while not self._closing.wait(self._follow_seconds):
            try:
                self.follow()
            except Exception:
                log.exception("What the pipeline has done could not be noted; it is tried again.")

    def close(self) -> None:
        """Commit and answer what is pending, and free the folders."""
        self._closing.set()
        self._follower.join()
        for each in self._logs.values():
            each.close()


def _prepare(queue: Path, end: int) -> None:
    stream_folder(queue).mkdir(exist_ok=True)
    if not identity_of(queue):
        replace(queue / "identity", uuid.uuid4().hex.encode())
    # After a power cut the note of the end may be old, and whoever reads from outside goes by it.
    with (queue / "tail").open("r+b") as tail:
        tail.write(tail_line(end))


class Multiplex:
    """Hands events to every place that wants their token: the incoming files, and queues (seed 003).

    Stands where `Incoming` stands for the gateway. An answer goes out when the events are on disk in all
    places (G1). Where one place fails, the request is answered with its error, and what other places have
    taken stays taken: when the sender repeats it, they have it twice, as they would after a lost answer.
    """

    def __init__(
        self, incoming: Incoming, queues: Queues, destinations: Sequence[DestinationSettings]
    ) -> None:
        self._incoming = incoming
        self._queues = queues
        self._destinations = destinations
        self._routes: dict[str, tuple[list[Log], bool]] = {}
        self._guard = threading.Lock()

    def append(self, token_id: str, bodies: Sequence[bytes], answer: Answer, token: Any) -> None:
        """Never blocks, thread-safe; `answer` is called once, by the thread of the last place."""
        if (route := self._routes.get(token_id)) is None:
            route = self._routes[token_id] = self._route(token_id)
        queues, wants_file = route
        if not queues:
            self._incoming.append(token_id, bodies, answer, token)
            return
        if len(queues) == 1 and not wants_file:
            queues[0].append(bodies, answer, token)
            return
        shared = _Shared(answer, token, len(queues) + wants_file)
        handed = 0
        try:
            if wants_file:
                self._incoming.append(token_id, bodies, self._part, shared)
                handed += 1
            for queue in queues:
                queue.append(bodies, self._part, shared)
                handed += 1
        except HeadwaterError as error:  # one of them is being closed; the rest will never be asked
            for _ in range(len(queues) + wants_file - handed):
                self._part([shared], error)

    def _route(self, token_id: str) -> tuple[list[Log], bool]:
        wanting = [each for each in self._destinations if each.wants(token_id)]
        queues = [self._queues.log(each.id) for each in wanting if each.is_stream]
        # Events that nobody wants yet are kept in files, for a destination that is added later.
        return queues, not queues or any(each.is_batch for each in wanting)

    def _part(self, tokens: list[Any], error: HeadwaterError | None) -> None:
        """One place has answered for some; whose last answer it was are told together."""
        done: list[_Shared] = []
        with self._guard:
            for shared in tokens:
                shared.error = shared.error or error
                shared.open -= 1
                if not shared.open:
                    done.append(shared)
        start = 0
        for i in range(1, len(done) + 1):
            if i == len(done) or not done[i].is_told_with(done[start]):
                first = done[start]
                first.answer([each.token for each in done[start:i]], first.error)
                start = i


class _Shared:
    """Events that several places are asked to keep."""

    __slots__ = ("answer", "error", "open", "token")

    def __init__(self, answer: Answer, token: Any, places: int) -> None:
        self.answer = answer
        self.token = token
        self.open = places
        self.error: HeadwaterError | None = None

    def is_told_with(self, other: _Shared) -> bool:
        return self.answer == other.answer and self.error is other.error
