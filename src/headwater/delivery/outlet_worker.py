"""Delivers the log to one outlet, on a loop that it may share with other outlets (G7).

    log ──read──► scheduler ──► outlet
                    │ settled
                    └──► rejects, then cursor: in that order, so that a crash between them loses nothing (G3)

Nothing is lost by stopping at any moment: an event is finished only after the receiver took it or the rejects
hold it (G4). A session sends its next batch only after its last one is recorded in the cursor, so at most
the requests that were under way are sent again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from headwater.clock import Clock, SystemClock
from headwater.delivery.loop_thread import LoopThreads
from headwater.delivery.outlets.base import Outlet, load_outlet
from headwater.delivery.read_ahead import ReadAhead
from headwater.delivery.refusal_log import RefusalLog
from headwater.delivery.scheduler import Scheduler
from headwater.delivery.sessions import Session
from headwater.errors import HeadwaterError
from headwater.events import Event
from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.metrics import Metrics
from headwater.settings import OutletSettings

logger = logging.getLogger(__name__)

GRACE_SECONDS = 15.0  # for the last commit and the outlet's own closing
MAX_REPLAYS = 100  # at a time: they count towards no budget
PAUSE_SECONDS = 1.0  # between looks at the replay requests, and after an error of the disk


class OutletWorker:
    """Delivers to one outlet from `start` until `close`."""

    def __init__(
        self,
        settings: OutletSettings,
        log: Log,
        rejects: RejectStore,
        metrics: Metrics,
        *,
        outlet: Outlet | None = None,
        loops: LoopThreads | None = None,
        clock: Clock | None = None,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Opens no connection. SettingsError or ExtensionError if the outlet cannot be made.

        Without `outlet` the settings' `type` names the class; without `loops` it has a loop of its own.
        """
        self.name = settings.name
        self.stage = f"outlet:{settings.name}"
        self._settings = settings
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._log = log
        self._rejects = rejects
        self._pause_seconds = pause_seconds
        self._outlet = outlet or load_outlet(settings)
        self._keys = self._outlet.keys()
        self._reader = log.reader(settings.name, settings.start)
        rejects.report_stage(self.stage)
        self._is_alone = loops is None
        self._loop = (loops or LoopThreads()).assign(self._outlet)
        self._ended: Future[None] | None = None
        self._problems: dict[str, str] = {}  # faults on our side of the outlet, by task
        self._scheduler: Scheduler | None = None
        self._read_ahead: ReadAhead | None = None
        self._timeout = 0.0
        # on the loop only:
        self._wake = asyncio.Event()  # something may have become readable, or there may be room again
        self._settled = asyncio.Event()  # there is something to commit
        self._stop = asyncio.Event()
        self._delivered: list[Event] = []
        self._refused: list[tuple[Event, str]] = []
        self._holding: list[Session] = []  # those whose last batch is not stored yet
        self._replaying: set[int] = set()
        self._refusal_log = RefusalLog(settings.name)

    # --- for other threads

    def start(self) -> None:
        """Begin to deliver; returns at once. OSError if there are too many open files."""
        # Here, so that no limit drops events first that the rejects hold already (G3).
        self._finish_known_rejects()
        self._loop.start()
        self._ended = self._loop.run(self._run())

    def stop(self, timeout_seconds: float) -> None:
        """Begin to stop, after the requests under way or after the timeout; returns at once."""
        self._timeout = timeout_seconds
        self._loop.call(self._stop.set)

    def join(self, timeout_seconds: float) -> None:
        """Wait until it has stopped; what was not delivered is in the log."""
        if self._ended is None:
            return
        deadline = time.monotonic() + timeout_seconds
        wait([self._ended], timeout_seconds)
        if not self._ended.done():
            logger.error("Outlet %s does not stop: its disk or its outlet hangs.", self.name)
        if self._is_alone:
            self._loop.close(max(0.0, deadline - time.monotonic()))

    def close(self, timeout_seconds: float) -> None:
        """Stop after the requests under way, or after the timeout; what was not delivered is in the log."""
        self.stop(timeout_seconds)
        self.join(timeout_seconds + GRACE_SECONDS)

    @property
    def is_running(self) -> bool:
        """Whether it has started and not stopped."""
        return self._ended is not None and not self._ended.done()

    def trouble(self) -> str | None:
        """The reason why events do not move; None if they do."""
        for problem in list(self._problems.values()):
            return problem
        return self._scheduler.trouble() if self._scheduler is not None else None

    @property
    def held_bytes(self) -> int:
        """Bytes of the events that are in memory now, within the budget (G8)."""
        return self._scheduler.held_bytes if self._scheduler is not None else 0

    @property
    def deferred(self) -> int:
        """Sessions that have events in the log which are read only when the session can take them."""
        return len(self._read_ahead.deferred) if self._read_ahead is not None else 0

    # --- on the loop

    async def _run(self) -> None:
        # The log is read and the cursor stored right here, on the loop: that takes less than handing it to
        # a thread would. All outlets read the same disk: if it hangs, none of them can go on.
        while not self._stop.is_set():
            try:
                await self._main()
            except Exception as error:
                self._note("start", error)
                await asyncio.sleep(self._pause_seconds)

    async def _main(self) -> None:
        scheduler = self._scheduler = Scheduler(
            self._outlet, self, client_id=uuid.uuid4().hex, clock=self._clock, metrics=self._metrics
        )
        self._read_ahead = ReadAhead(scheduler, self._keys, self._settings, self._reader)
        for counter in ("delivery_events_delivered", "delivery_events_rejected", "delivery_bytes_sent"):
            self._metrics.counter(counter).begin(self.name)
        self._problems.pop("start", None)
        unsubscribe = self._loop.on_append(self._log, self._wake.set)
        works = [asyncio.create_task(self._repeat(work)) for work in (self._read, self._commit, self._tick)]
        await self._stop.wait()
        unsubscribe()
        works[0].cancel()
        await scheduler.stop(self._timeout)
        for work in works:
            work.cancel()
        await asyncio.wait(works)
        self._last_commit()
        self._reader.release()

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one of the worker's tasks in a loop; an error is logged, and the task repeated later (G9)."""
        name = work.__name__
        while True:
            try:
                await work()
                self._problems.pop(name, None)
            except Exception as error:
                self._note(name, error)
                await asyncio.sleep(self._pause_seconds)

    def _note(self, task: str, error: Exception) -> None:
        if task not in self._problems:
            is_ours = not isinstance(error, HeadwaterError)
            logger.warning("Outlet %s waits: %s", self.name, error, exc_info=is_ours)
        self._problems[task] = str(error) or type(error).__name__

    # --- reading

    async def _read(self) -> None:
        """Fill the scheduler as far as there is room, then wait for room or for new events (G8)."""
        assert self._read_ahead is not None
        self._wake.clear()
        moved = self._read_ahead.step(self._log.end)
        self._problems.pop("_read", None)  # now, since the wait that follows may be a long one
        if moved:
            await asyncio.sleep(0)  # a long read is many steps; requests are served between them
        else:
            await self._wake.wait()

    # --- called by the scheduler

    def on_settled(self, session: Session, delivered: list[Event], refused: list[tuple[Event, str]]) -> bool:
        assert self._read_ahead is not None
        self._delivered += delivered
        self._refused += refused
        self._holding.append(session)
        self._read_ahead.on_settled(session, [*delivered, *(event for event, _ in refused)])
        self._settled.set()
        return True

    def retries_refused(self, event: Event) -> bool:
        # a replayed reject may fail again and stay a reject; it never holds up the rest
        return self._settings.on_refused == "block" and event.position > 0

    def on_retry_scheduled(self, session: Session) -> None:
        assert self._read_ahead is not None
        dropped = self._read_ahead.on_retry_scheduled(session)
        for event in dropped:
            self._replaying.discard(-event.position)
        self._reader.release([event.position for event in dropped])
        self._wake.set()

    # --- committing

    async def _commit(self) -> None:
        """Store all outcomes that were settled meanwhile, in one commit."""
        await self._settled.wait()
        await asyncio.sleep(0)  # those that are answered in the same moment share the commit
        self._settled.clear()
        assert self._scheduler is not None
        delivered, refused, holding = self._delivered, self._refused, self._holding
        self._delivered, self._refused, self._holding = [], [], []
        try:
            self._store(delivered, refused)
        except Exception:
            # storing is idempotent, so it is simply done again
            self._delivered = delivered + self._delivered
            self._refused = refused + self._refused
            self._holding = holding + self._holding
            self._settled.set()
            raise
        self._count(delivered, refused)
        for session in holding:
            self._scheduler.release(session)
        self._wake.set()

    def _last_commit(self) -> None:
        if self._delivered or self._refused:
            try:
                self._store(self._delivered, self._refused)
                self._count(self._delivered, self._refused)
            except Exception as error:
                logger.warning(
                    "Outlet %s could not store what it had delivered; it will be sent again: %s",
                    self.name,
                    error,
                )
        self._refusal_log.flush(self._clock.monotonic(), last=True)

    def _store(self, delivered: list[Event], refused: list[tuple[Event, str]]) -> None:
        if fresh := [(event, reason) for event, reason in refused if event.position > 0]:
            new = [
                NewReject(reason, event.body, position=event.position, received_at=event.received_at)
                for event, reason in fresh
            ]
            self._rejects.add(self.stage, new)
        done = [event.position for event in delivered if event.position > 0]
        if done or fresh:
            self._reader.finish(done, [event.position for event, _ in fresh])
        replayed = {-event.position for event in delivered} & self._replaying
        if replayed:
            self._rejects.replayed(*sorted(replayed))
            self._replaying -= replayed
        for event, reason in refused:
            if event.position < 0 and -event.position in self._replaying:
                self._rejects.failed_again(-event.position, reason)
                self._replaying.discard(-event.position)
        if replayed:
            self._settle_rejects()

    def _finish_known_rejects(self) -> None:
        """Finish events that the rejects hold, and the cursor does not know: a crash came between the two.

        They are not sent again, since the receiver might take them: each event has one fate (G3).
        """
        log, reader = self._log, self._reader
        try:
            known = self._rejects.positions(self.stage, reader.position)
            waiting = [each for each in known if each < log.end and not reader.is_finished(each)]
            # the time distinguishes events of this log from those of one that used the rejects before it
            reader.finish((), [each for each in waiting if log.received_at(each) == known[each]])
        except HeadwaterError as error:
            logger.warning("Outlet %s may send rejects again: %s", self.name, error)

    def _settle_rejects(self) -> None:
        """Count what became of rejects: they were delivered by a replay, or dropped by a limit (G3)."""
        if self._refused:
            return  # the cursor must count them as rejected first
        if settlements := self._rejects.settlements(self.stage):
            last = self._reader.settle(self._rejects.file_id, settlements)
            self._rejects.forget_settlements(self.stage, last)

    def _count(self, delivered: list[Event], refused: list[tuple[Event, str]]) -> None:
        assert self._read_ahead is not None
        self._read_ahead.committed([*delivered, *(event for event, _ in refused)])
        size = sum(len(event.body) for event in delivered)
        self._metrics.counter("delivery_events_delivered").add(len(delivered), self.name)
        self._metrics.counter("delivery_bytes_sent").add(size, self.name)
        fresh = [(event, reason) for event, reason in refused if event.position > 0]
        self._metrics.counter("delivery_events_rejected").add(len(fresh), self.name)
        self._refusal_log.add(fresh, self._clock.monotonic())

    # --- once a second

    async def _tick(self) -> None:
        """Update the lag; put requested replays into the scheduler, as events of negative position."""
        assert self._scheduler is not None
        self._metrics.gauge("delivery_lag_events").set(self._reader.lag_events(), self.name)
        self._metrics.gauge("delivery_lag_seconds").set(self._reader.lag_seconds(), self.name)
        self._refusal_log.flush(self._clock.monotonic())
        self._rejects.expire(self._log.witnessed_now())
        has_work = self._rejects.has_work(self.stage)
        if has_work:
            self._settle_rejects()
        if has_work and not self._replaying:
            for reject in self._rejects.requested(self.stage, MAX_REPLAYS):
                self._replaying.add(reject.id)
                event = Event(-reject.id, reject.received_at, reject.body)
                self._scheduler.put(self._keys.of(event.body), event)
        await asyncio.sleep(self._pause_seconds)
