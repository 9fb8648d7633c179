"""Folding: the reader of the log that keeps the graph up to date, and the import of events from files."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.graph.store.database import Folded, Graph
from headwater.log.queue import offline as inspect
from headwater.log.queue.log import Log
from headwater.log.queue.reader import Reader
from headwater.metrics import Metrics

__all__ = ["READER", "Folding", "import_events", "lines_of"]

log = logging.getLogger(__name__)

READER = "headwater:graph"  # its cursor in the log; no outlet can have a colon in its name
BATCH_BYTES = 8 * 1024 * 1024
PAUSE_SECONDS = 0.2  # between two batches of a trickle: one commit for what gathers meanwhile
RETRY_SECONDS = 5.0
COLLECT_SECONDS = 600.0
COLLECT_EVENTS = 200_000
MAX_LINE_BYTES = 32 * 1024 * 1024


class Folding:
    """Folds the log into the graph, in a thread of its own. It slows nobody: the log keeps what waits (G7).

    Each event is folded exactly once: the position is committed with the batch. The log's cursor follows
    behind; it only says what the log may drop. Where the graph is new or was damaged, everything that the log
    still holds is folded again.
    """

    def __init__(self, log: Log, graph: Graph, metrics: Metrics, *, batch_events: int = 1_000) -> None:
        self._log = log
        self._graph = graph
        self._batch_events = batch_events
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._trouble = ""
        self._since = self._collected_at = 0.0
        self._folded = metrics.counter("graph_events_folded")
        self._unreadable = metrics.counter("graph_events_unreadable")
        self._position = graph.position
        self._reader = self._begin()
        metrics.gauge("graph_lag_events").set(lambda: max(0, log.end - self._position))
        self._unlisten = log.on_append(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="graph", daemon=True)

    def _begin(self) -> Reader:
        reader = self._log.reader(READER)
        if self._position > self._log.end:
            log.warning(
                "The graph is ahead of the log, which must be another one; it is folded from its start."
            )
            self._position = 0
        if self._position < reader.position:
            # The graph is new, or an older copy: begin with the oldest event that is kept.
            self._log.forget(READER)
            reader = self._log.reader(READER)
        elif self._position > reader.position:
            # Killed after the graph's commit and before the log's. If nobody said so, the log would keep
            # these events, and all that follow, for ever.
            reader.finish(range(reader.position, self._position))
        self._position = max(self._position, reader.position)
        return reader

    def start(self) -> None:
        """Begin to fold."""
        self._thread.start()

    def trouble(self) -> str:
        """Why it does not move, for /readyz; empty when all is well."""
        return self._trouble

    @property
    def lag_events(self) -> int:
        """Events in the log that are not in the graph yet."""
        return max(0, self._log.end - self._position)

    def close(self, timeout_seconds: float = 20.0) -> None:
        """Finish the batch under way and stop; what waits is folded after the next start."""
        self._stop.set()
        self._wake.set()
        self._unlisten()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._reader.close()
            self._graph.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._step():
                    self._trouble = ""
                else:
                    self._wake.wait(RETRY_SECONDS)
                    self._wake.clear()
                    self._stop.wait(PAUSE_SECONDS)
            except HeadwaterError as error:
                self._failed(error.text)
            except Exception as error:
                log.exception("Folding failed.")
                self._failed(f"{type(error).__name__}: {error}")

    def _failed(self, text: str) -> None:
        if text != self._trouble:
            log.error("The graph does not move: %s", text)
        self._trouble = text
        self._stop.wait(RETRY_SECONDS)

    def _step(self) -> bool:
        """Fold the next batch; False when there is none."""
        self._collect()
        events = self._reader.read(self._position, self._batch_events, BATCH_BYTES)
        if not events:
            self._position = max(self._position, self._reader.position)
            return False
        end = events[-1].position + 1
        folded = self._graph.fold((event.body for event in events), end)
        self._reader.finish(event.position for event in events)
        self._position = end
        self._since += folded.events
        self._folded.add(folded.events - folded.unreadable)
        self._unreadable.add(folded.unreadable)
        return True

    def _collect(self) -> None:
        now = self._log.clock.monotonic()
        if self._since < COLLECT_EVENTS and now - self._collected_at < COLLECT_SECONDS:
            return
        self._since, self._collected_at = 0, now
        self._graph.collect()


def import_events(
    graph: Graph,
    bodies: Iterator[bytes],
    *,
    batch_events: int = 1_000,
    tell: Callable[[int], None] | None = None,
) -> Folded:
    """Fold events from anywhere; again and again, if one likes. `tell` hears how many bytes were read."""
    events = unreadable = size = 0
    batch: list[bytes] = []

    def fold() -> None:
        nonlocal events, unreadable, size
        done = graph.fold(batch)
        events, unreadable = events + done.events, unreadable + done.unreadable
        batch.clear()
        size = 0

    read = 0
    for body in bodies:
        batch.append(body)
        size += len(body)
        read += len(body)
        if len(batch) >= batch_events or size >= BATCH_BYTES:
            fold()
            if tell is not None:
                tell(read)
    if batch:
        fold()
    return Folded(events, unreadable)


def lines_of(path: Path) -> Iterator[bytes]:
    """The events of a file of JSON lines, also packed (`.gz`), or of a folder of the log.

    Lines that `headwater log export --json` wrote, with position and time around the event, are folded as
    well. A line that is far too long is handed on in part, and counts as unreadable.
    """
    if path.is_dir():
        for event in inspect.export(path):
            yield event.body
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            whole = line.endswith(b"\n")
            if line.strip():
                yield _unwrapped(line)
            while not whole and (line := file.readline(MAX_LINE_BYTES)):
                whole = line.endswith(b"\n")


def _unwrapped(line: bytes) -> bytes:
    head = b'{"position":'
    if line.startswith(head) and (start := line.find(b'"event":')) > 0:
        return line[start + 8 : line.rindex(b"}")]
    return line
