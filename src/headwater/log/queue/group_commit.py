"""The group commit: one thread gathers appends, stores them with one fsync, then completes them.

While one group is being synced the next one gathers, so that one fsync serves all requests of a group. No
request is answered before the commit that holds its events is on disk (G1). Several group commits may share
a thread, which serves them in turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from headwater.errors import HeadwaterError, LogClosed, LogUnavailable

logger = logging.getLogger(__name__)

DEAD_SECONDS = 1.0  # between two looks whether the thread that a close waits for lives

OnCommitted = Callable[[list[Any], HeadwaterError | None], None]
"""Called with receipts in order: their events are on disk or, with an error, are not."""
T = TypeVar("T")


def complete_runs(done: Iterable[tuple[OnCommitted, HeadwaterError | None, Sequence[Any]]]) -> None:
    """Call each callback once for neighbours that share it and their error."""
    for (on_committed, error), run in groupby(done, key=itemgetter(0, 1)):
        try:
            on_committed([receipt for _, _, receipts in run for receipt in receipts], error)
        except Exception:
            logger.exception("A callback of a commit failed; the others are called.")


class PendingAppend(NamedTuple):
    """Events that wait for the next commit, and the receipts of their appends."""

    bodies: Sequence[bytes]
    bytes: int
    on_committed: OnCommitted
    receipts: list[Any]


class WriterThread:
    """Serves group commits, those with something to do in turn; ends when the last of them is closed."""

    def __init__(self, tick_seconds: float, name: str = "log-writer") -> None:
        self.wake = threading.Condition()  # guards the fields of this thread and of its group commits
        self._tick_seconds = max(tick_seconds, 0.05)  # 0 means often, not a busy loop
        self._name = name
        self._due: deque[GroupCommit] = deque()
        self._members: list[GroupCommit] = []
        self._thread: threading.Thread | None = None

    def add(self, member: GroupCommit) -> None:
        """Serve it from now on."""
        with self.wake:
            self._members.append(member)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def schedule(self, member: GroupCommit) -> None:
        """It has something to do; called with `wake`, once until its next step."""
        self._due.append(member)
        self.wake.notify()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        return (thread := self._thread) is not None and thread.is_alive()

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            with self.wake:
                if not self._due:
                    if not self._members:
                        self._thread = None
                        return
                    self.wake.wait(self._tick_seconds)
                member = self._due.popleft() if self._due else None
            if member is not None and member.step():
                with self.wake:
                    self._members.remove(member)
                member.ended.set()
            if time.monotonic() - ticked >= self._tick_seconds:
                for each in list(self._members):
                    each.run_and_log_errors(each.tick)
                ticked = time.monotonic()


class GroupCommit:
    """Gathers appends. `commit` stores a group, or raises the error with which all of it fails.

    `commit`, `tick` and the functions of `call` run in the writer's thread.
    """

    def __init__(
        self,
        commit: Callable[[list[PendingAppend]], None],
        tick: Callable[[], None],
        tick_seconds: float,
        max_bytes: int,
        thread: WriterThread | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Without `thread` it has one of its own. `on_end` is called after the last commit."""
        self.tick = tick
        self.ended = threading.Event()  # set after the last step
        self._commit = commit
        self._on_end = on_end
        self._max_bytes = max_bytes
        self._pending: deque[PendingAppend] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_due = False
        self._closing = False
        self._faults = 0  # commits in a row that failed by a fault of ours
        self._thread = thread or WriterThread(tick_seconds)
        self._wake = self._thread.wake

    def start(self) -> None:
        self._thread.add(self)

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._thread.schedule(self)

    def append(self, bodies: Sequence[bytes], on_committed: OnCommitted, receipt: Any) -> None:
        """Add events to the next group; never blocks. LogClosed once `close` was called."""
        self.append_all([(bodies, receipt)], on_committed)

    def append_all(self, items: Sequence[tuple[Sequence[bytes], Any]], on_committed: OnCommitted) -> None:
        """`append` for several (bodies, receipt) at once, in order, with one wake-up of the thread."""
        appends = self._joined(items, on_committed)
        with self._wake:
            if self._closing:
                raise LogClosed("The log is being closed.", hint="Send the event again to the next process.")
            self._pending.extend(appends)
            self._schedule()

    def _joined(
        self, items: Sequence[tuple[Sequence[bytes], Any]], on_committed: OnCommitted
    ) -> list[PendingAppend]:
        """As few appends as fit into a commit each: the work of both threads grows with their number."""
        joined: list[PendingAppend] = []
        bodies: list[bytes] = []
        receipts: list[Any] = []
        size = 0
        for more, receipt in items:
            more_bytes = sum(map(len, more))
            if receipts and size + more_bytes > self._max_bytes:
                joined.append(PendingAppend(bodies, size, on_committed, receipts))
                bodies, receipts, size = [], [], 0
            bodies += more
            receipts.append(receipt)
            size += more_bytes
        joined.append(PendingAppend(bodies, size, on_committed, receipts))
        return joined

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two commits, in the writer's thread, which alone changes the files."""
        if self._thread.is_current:
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
            self._schedule()
        return future.result()

    def begin_close(self) -> None:
        """Accept nothing new; pending appends are committed and answered."""
        with self._wake:
            if not self._closing:
                self._closing = True
                self._schedule()

    def close(self) -> None:
        """Accept nothing new, and wait until pending appends are committed and answered."""
        self.begin_close()
        while not self.ended.wait(DEAD_SECONDS) and self._thread.is_alive:
            pass

    def step(self) -> bool:
        """Carry out calls and one commit; returns whether it was the last."""
        with self._wake:
            calls, self._calls = self._calls, deque()
            group = self._take()
            is_last = self._closing and not group
            self._is_due = False
            if self._pending or (self._closing and not is_last):
                self._schedule()
        for call in calls:
            call()
        if group:
            self._store(group)
        if is_last and self._on_end is not None:
            self.run_and_log_errors(self._on_end)
        return is_last

    def _take(self) -> list[PendingAppend]:
        group: list[PendingAppend] = []
        room = self._max_bytes
        while self._pending and (not group or self._pending[0].bytes <= room):
            room -= self._pending[0].bytes
            group.append(self._pending.popleft())
        return group

    def _store(self, group: list[PendingAppend]) -> None:
        error: HeadwaterError | None = None
        try:
            self._commit(group)
        except HeadwaterError as failure:
            error = failure
        except Exception as failure:  # a fault of ours must not leave requests without an answer
            error = self._fault(failure)
        else:
            self._recovered()
        complete_runs((each.on_committed, error, each.receipts) for each in group)

    def _fault(self, failure: Exception) -> LogUnavailable:
        if self._faults == 0:  # logged once, not for every commit until it works again
            logger.error("The log's writer failed.", exc_info=failure)
        self._faults += 1
        return LogUnavailable(f"The log's writer failed ({type(failure).__name__}).", hint="Send it again.")

    def _recovered(self) -> None:
        if self._faults:
            logger.warning("The log's writer works again; it had failed %d times in a row.", self._faults)
            self._faults = 0

    def run_and_log_errors(self, function: Callable[[], None]) -> None:
        """Run a callback; an exception is logged, and does not end the writer's thread."""
        try:
            function()
        except Exception:
            logger.exception("A callback of the log's writer failed.")


class Receipt:
    """Lets a thread wait for its commit and returns the position of its first event."""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.first = 0

    @staticmethod
    def complete(receipts: list[Receipt], error: HeadwaterError | None) -> None:
        for receipt in receipts:
            if error is None:
                receipt.future.set_result(receipt.first)
            else:
                receipt.future.set_exception(error)
