"""The group commit: one thread takes what has gathered, writes it in one transaction, then answers.

While one group is being synced the next gathers, so the cost of an fsync is shared by everybody who waits
for it, and nobody is answered before the commit that holds the event is on disk (G1).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headwater.errors import HeadwaterError, LogClosed, LogUnavailable

__all__ = ["Answer", "Entry", "Receipt", "Writer"]

log = logging.getLogger(__name__)

Answer = Callable[[list[Any], HeadwaterError | None], None]
T = TypeVar("T")


class Entry(NamedTuple):
    """Events that were handed in together, and whom to tell: a token for each who handed some in."""

    bodies: Sequence[bytes]
    bytes: int
    answer: Answer
    tokens: list[Any]


class Writer:
    """Owns the thread. `commit` stores a group, or raises the error that everybody in it is told."""

    def __init__(
        self,
        commit: Callable[[list[Entry]], None],
        tick: Callable[[], None],
        tick_seconds: float,
        max_bytes: int,
    ) -> None:
        self._commit = commit
        self._tick = tick
        self._tick_seconds = max(tick_seconds, 0.05)  # 0 means often, not a busy loop
        self._max_bytes = max_bytes
        self._pending: deque[Entry] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._faults = 0  # commits in a row that failed by a fault of ours
        self.pending_bytes = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, bodies: Sequence[bytes], answer: Answer, token: Any) -> None:
        """Never blocks; the thread calls `answer([token, …], error)`. Raises LogClosed once it is closed."""
        self.append_all([(bodies, token)], answer)

    def append_all(self, items: Sequence[tuple[Sequence[bytes], Any]], answer: Answer) -> None:
        """`append` for several at once, in order: one wake-up and few entries instead of many."""
        entries = self._joined(items, answer)
        with self._wake:
            if self._closing:
                raise LogClosed("The log is being closed.", hint="Send the event again to the next process.")
            self._pending.extend(entries)
            self.pending_bytes += sum(entry.bytes for entry in entries)
            self._wake.notify()

    def _joined(self, items: Sequence[tuple[Sequence[bytes], Any]], answer: Answer) -> list[Entry]:
        """As few entries as fit into a commit each, since both threads work by the entry."""
        entries: list[Entry] = []
        bodies: list[bytes] = []
        tokens: list[Any] = []
        size = 0
        for theirs, token in items:
            more = sum(map(len, theirs))
            if tokens and size + more > self._max_bytes:
                entries.append(Entry(bodies, size, answer, tokens))
                bodies, tokens, size = [], [], 0
            bodies += theirs
            tokens.append(token)
            size += more
        entries.append(Entry(bodies, size, answer, tokens))
        return entries

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two commits, in the thread that alone changes partitions."""
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # it belongs to the caller
                future.set_exception(error)

        with self._wake:
            if self._closing:
                raise LogClosed("The log is being closed.")
            self._calls.append(run)
            self._wake.notify()
        return future.result()

    def close(self) -> None:
        """Take nothing new, commit and answer what is pending, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            with self._wake:
                if not (self._pending or self._calls or self._closing):
                    self._wake.wait(self._tick_seconds)
                calls, self._calls = self._calls, deque()
                group = self._take()
                done = self._closing and not group
            for call in calls:
                call()
            if group:
                self._store(group)
            elif done:
                return
            if time.monotonic() - ticked >= self._tick_seconds:
                self.guarded(self._tick)
                ticked = time.monotonic()

    def _take(self) -> list[Entry]:
        group: list[Entry] = []
        room = self._max_bytes
        while self._pending and (not group or self._pending[0].bytes <= room):
            room -= self._pending[0].bytes
            group.append(self._pending.popleft())
        return group

    def _store(self, group: list[Entry]) -> None:
        error: HeadwaterError | None = None
        try:
            self._commit(group)
        except HeadwaterError as failure:
            error = failure
        except Exception as failure:  # a fault of ours must not leave everybody waiting for ever
            error = self._fault(failure)
        else:
            self._recovered()
        with self._wake:
            self.pending_bytes -= sum(entry.bytes for entry in group)
        start = 0
        for i in range(1, len(group) + 1):
            if i == len(group) or group[i].answer != group[start].answer:
                tokens = [token for entry in group[start:i] for token in entry.tokens]
                self.guarded(partial(group[start].answer, tokens, error))
                start = i

    def _fault(self, failure: Exception) -> LogUnavailable:
        if self._faults == 0:  # told once, not for every commit until it is mended
            log.error("The log's writer failed.", exc_info=failure)
        self._faults += 1
        return LogUnavailable(f"The log's writer failed ({type(failure).__name__}).", hint="Send it again.")

    def _recovered(self) -> None:
        if self._faults:
            log.warning("The log's writer works again; it had failed %d times in a row.", self._faults)
            self._faults = 0

    def guarded(self, function: Callable[[], None]) -> None:
        """Whatever a callback does, the thread that everybody depends on goes on."""
        try:
            function()
        except Exception:
            log.exception("A callback of the log's writer failed.")


class Receipt:
    """Lets a caller wait for the answer, and tells it the position."""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.first = 0

    @staticmethod
    def answer(receipts: list[Any], error: HeadwaterError | None) -> None:
        for receipt in receipts:
            if error is None:
                receipt.future.set_result(receipt.first)
            else:
                receipt.future.set_exception(error)
