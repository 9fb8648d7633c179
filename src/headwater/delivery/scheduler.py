"""The scheduler: many sessions, few requests at once, each session in order.

One scheduler runs on one asyncio loop. `put` adds events, and the owner is called with their outcomes. There
is no task per session: sessions with something to send wait in one queue and get a request slot in turn, so
ten thousand keys cost ten thousand small objects, and a session that waits holds no slot (G7). A session that
failed gets its slot after a pause: see `_failed`. A receiver may ask all sessions to wait: see `_pause`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from headwater.clock import Clock, SystemClock
from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import NotConnected, Outlet, Refused, Results
from headwater.delivery.sessions import Backoff, Session, Settlement
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event
from headwater.formats.printable import printable_line
from headwater.metrics import Metrics
from headwater.system.crash_points import crash_point

logger = logging.getLogger(__name__)

_REASON_CHARACTERS = 500
_LOGGED_REASONS = 20  # different ones that are logged until all is well again


class Owner(Protocol):
    """The owner that feeds a scheduler. Its methods run on the scheduler's loop and must not block it."""

    def on_settled(self, session: Session, delivered: list[Event], refused: list[tuple[Event, str]]) -> bool:
        """Take settled events. True: send nothing more of this session until `release` is called."""
        ...

    def retries_refused(self, event: Event) -> bool:
        """Whether a refused event is retried without limit instead of rejected."""
        ...

    def on_retry_scheduled(self, session: Session) -> None:
        """Take note that the session's try failed and it waits for the next."""
        ...


class Scheduler:
    """Sends the events that its owner puts in. All methods are for the loop's own thread."""

    def __init__(
        self,
        outlet: Outlet,
        owner: Owner,
        *,
        client_id: str,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.outlet = outlet
        self.settings = outlet.settings
        self.sessions: dict[str, Session] = {}
        self.held_bytes = 0  # of all sessions; given back when an event is settled
        self.held_events = 0
        self.in_flight = 0
        self.reason = ""  # why `connect` failed, while it does
        self.paused_until = 0.0  # on the loop's clock, while the receiver has asked all sessions to wait
        self._pause_reason = ""
        self._pause_timer: asyncio.TimerHandle | None = None
        self._owner = owner
        self._client_id = client_id
        self._clock = clock or SystemClock()
        self._metrics = metrics or Metrics()
        self._ready: deque[Session] = deque()  # sessions that want a request
        self._retrying: deque[Session] = deque()  # the same, for those that failed last time
        self._retries_in_flight = 0
        # Sessions of a dead receiver time out slowly; they may not take all requests from the healthy ones.
        self._max_retries_in_flight = max(1, self.settings.max_in_flight // 4)
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._is_connected = False
        self._is_stopped = False
        self._hurry = 0  # events up to this position do not wait for their batch to fill
        self._failing: set[str] = set()
        self._logged: set[str] = set()

    # --- fed by the owner

    def put(self, key: Key, event: Event) -> None:
        """Take an event at the end of its session."""
        session = self.sessions.get(key.id)
        if session is None:
            session = Session(f"{self._client_id}-{key.id}", key, Backoff(self.settings.retry))
            self.sessions[key.id] = session
            self._gauge_sessions()
        session.put(self.now(), event)
        self.held_bytes += len(event.body)
        self.held_events += 1
        self._schedule(session)

    def hurry(self, position: int) -> None:
        """Send everything up to this position without waiting for fuller batches."""
        self._hurry = max(self._hurry, position)
        for session in list(self.sessions.values()):
            self._schedule(session)

    def forget(self, session: Session, keep_bytes: int, keep_events: int) -> list[Event]:
        """Drop all but the first events of a waiting session; for an owner that can read them again."""
        dropped = session.drop_after(keep_bytes, keep_events)
        self.held_bytes -= sum(len(event.body) for event in dropped)
        self.held_events -= len(dropped)
        return dropped

    def release(self, session: Session) -> None:
        """Let a session go on: the owner has stored the outcome of its last batch."""
        session.awaits_commit = False
        self._tidy(session)
        self._schedule(session)

    def remaining(self) -> Iterator[Event]:
        """All events held, session by session, in order within each."""
        for session in self.sessions.values():
            yield from session.events()

    # --- state, readable from any thread

    @property
    def failing(self) -> int:
        """Sessions whose last try failed."""
        return len(self._failing)

    def trouble(self) -> str | None:
        """Why events do not move, or None."""
        if self.reason:
            return f"cannot connect: {self.reason}"
        if self._pause_reason:
            return self._pause_reason
        reasons = [s.reason for s in list(self.sessions.values()) if s.is_failing and s.reason]
        if not reasons:
            return self.outlet.trouble() if self.in_flight else None
        if len(reasons) == 1:
            return reasons[0]
        return f"{len(reasons)} of {len(self.sessions)} sessions fail; one of them: {reasons[0]}"

    # --- life

    async def stop(self, timeout_seconds: float) -> None:
        """Start nothing new, let what is under way end in time, then cancel it; close the outlet."""
        self._is_stopped = True
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for session in self.sessions.values():
            if session.timer is not None:
                session.timer.cancel()
        try:
            await self.outlet.close()
        except Exception:
            logger.warning("Outlet %s did not close cleanly.", self.settings.name, exc_info=True)

    # --- the line

    def now(self) -> float:
        """The time on the loop's clock."""
        return asyncio.get_running_loop().time()

    def _schedule(self, session: Session) -> None:
        """Put the session into the line if it has something to send now, else set its timer."""
        if session.is_sending or session.is_queued or session.awaits_commit or self._is_stopped:
            return
        if session.is_failing and session.timer is not None:
            return  # its pause is not over
        if not session.resend:
            if not session.queue:
                return
            since, first = session.queue[0]
            due = since + self.settings.batch_age_seconds
            if not (
                self.settings.batch_age_seconds <= 0
                or first.position <= self._hurry
                or session.bytes >= self.outlet.batch_bytes
                or len(session.queue) >= self.outlet.batch_events
                or due <= self.now()
            ):
                if session.timer is None:
                    loop = asyncio.get_running_loop()
                    session.timer = loop.call_at(due, self._woken, session)
                return
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        session.is_queued = True
        (self._retrying if session.is_failing else self._ready).append(session)
        self._dispatch()

    def _woken(self, session: Session) -> None:
        session.timer = None
        self._schedule(session)

    def _dispatch(self) -> None:
        """Give free request slots to the first sessions in line."""
        if self._is_stopped or self._pause_reason or not (self._ready or self._retrying):
            return
        if not self._is_connected:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            return
        while self.in_flight < self.settings.max_in_flight:
            if self._retrying and self._retries_in_flight < self._max_retries_in_flight:
                session = self._retrying.popleft()
                self._retries_in_flight += 1
                probe = True
            elif self._ready:
                session = self._ready.popleft()
                probe = False
            else:
                return
            session.is_queued = False
            session.is_sending = True
            self.in_flight += 1
            self._metrics.gauge("delivery_in_flight").set(self.in_flight, self.settings.name)
            task = asyncio.create_task(self._try(session, probe))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        backoff = Backoff(self.settings.retry)
        while True:
            try:
                async with asyncio.timeout(self.settings.timeout_seconds or None):
                    await self.outlet.connect()
                break
            except Exception as error:
                wish = error.retry_after_seconds if isinstance(error, OutletUnavailable) else None
                self.reason = self._explain(error)
                self._log_once(self.reason)
                self._gauge_failing()
                self._metrics.counter("delivery_retries").add(1, self.settings.name)
                await asyncio.sleep(backoff.failed(wish))
        self._connecting = None
        self._is_connected = True
        self.reason = ""
        self._gauge_failing()
        self._dispatch()

    # --- one try

    async def _try(self, session: Session, probe: bool) -> None:
        try:
            settlement = await self._send(session)
        finally:
            session.is_sending = False
            self.in_flight -= 1
            if probe:
                self._retries_in_flight -= 1
            self._metrics.gauge("delivery_in_flight").set(self.in_flight, self.settings.name)
        self._give_up(session, settlement)
        self._settle(session, settlement)
        self._dispatch()

    async def _send(self, session: Session) -> Settlement:
        requests = self._metrics.counter("delivery_requests")
        name = self.settings.name
        batch, unfit = session.take(self.outlet)
        front = session.in_flight[0].position if session.in_flight else 0
        if session.first_tried[0] != front:
            session.first_tried = (front, self.now())
        if not batch.events:
            return session.settle([Refused(reason) for _, reason in unfit], self._owner.retries_refused)
        results: Results
        crash_point("reader.before_send")
        try:
            async with asyncio.timeout(self.settings.timeout_seconds or None):
                results = await self.outlet.send(batch)
        except asyncio.CancelledError:
            session.settle([], self._owner.retries_refused)
            raise
        except EventRefused as error:
            requests.add(1, name, "refused")
            if len(batch.events) > 1:
                session.split()
                return Settlement()
            results = [Refused(error.text)]
        except Exception as error:
            requests.add(1, name, "retry")
            if isinstance(error, NotConnected):
                self._is_connected = False
            settlement = session.settle([], self._owner.retries_refused)
            settlement.reason = ""
            wish = error.retry_after_seconds if isinstance(error, OutletUnavailable) else None
            settlement.retry_later(self._explain(error), wish)
            settlement.pauses_all = isinstance(error, OutletUnavailable) and error.pauses_all
            return settlement
        crash_point("reader.after_send")
        settlement = session.settle(results[: len(batch.events)], self._owner.retries_refused)
        done = len(settlement.delivered)
        requests.add(1, name, "ok" if done == len(batch.events) else "partial" if done else "retry")
        return settlement

    def _give_up(self, session: Session, settlement: Settlement) -> None:
        """Refuse the events in front if they have been tried for as long as the settings allow."""
        limit = self.settings.retry.max_elapsed_seconds
        tried = self.now() - session.first_tried[1]
        if settlement.pause and limit and tried >= limit:
            reason = f"tried in vain for {tried:.0f} seconds, the last time: {settlement.reason}"
            refused = session.give_up(reason, self._owner.retries_refused)
            settlement.refused += refused
            settlement.gave_up = bool(refused)

    def _settle(self, session: Session, settlement: Settlement) -> None:
        done = len(settlement.delivered) + len(settlement.refused)
        if done:
            size = sum(len(event.body) for event in settlement.delivered)
            size += sum(len(event.body) for event, _ in settlement.refused)
            session.bytes -= size
            self.held_bytes -= size
            self.held_events -= done
            if not settlement.gave_up:
                session.backoff.succeeded()
        waits = settlement.pause and not session.is_empty
        if not waits:
            self._recovered(session, is_well=not settlement.gave_up)
        if settlement.pauses_all and settlement.after_seconds:
            self._pause(settlement)
        if done:
            session.awaits_commit = self._owner.on_settled(session, settlement.delivered, settlement.refused)
        if waits:
            self._failed(session, settlement)
        self._tidy(session)
        self._schedule(session)

    def _tidy(self, session: Session) -> None:
        """Remove a session that has nothing to do."""
        if session.is_empty and not session.awaits_commit:
            self.sessions.pop(session.key.id, None)
            self._gauge_sessions()

    def _failed(self, session: Session, settlement: Settlement) -> None:
        now = self.now()
        pause = session.backoff.failed(settlement.after_seconds)
        self._log_once(settlement.reason)
        session.reason = settlement.reason
        session.failing_since = session.failing_since or now
        self._failing.add(session.key.id)
        self._gauge_failing()
        self._metrics.counter("delivery_retries").add(1, self.settings.name)
        session.timer = asyncio.get_running_loop().call_later(pause, self._woken, session)
        self._owner.on_retry_scheduled(session)

    def _pause(self, settlement: Settlement) -> None:
        """Start no request of any session until the time that the receiver has asked for."""
        seconds = min(settlement.after_seconds or 0.0, self.settings.retry.max_retry_after_seconds)
        self.paused_until = max(self.paused_until, self.now() + seconds)
        self._pause_reason = settlement.reason
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = asyncio.get_running_loop().call_at(self.paused_until, self._resume)

    def _resume(self) -> None:
        self.paused_until = 0.0
        self._pause_reason = ""
        self._dispatch()

    def _recovered(self, session: Session, *, is_well: bool) -> None:
        if not session.is_failing:
            return
        session.failing_since = None
        session.reason = ""
        self._failing.discard(session.key.id)
        self._gauge_failing()
        if is_well and not self._failing:
            logger.info("Outlet %s takes events again.", self.settings.name)
            self._logged.clear()

    # --- logs and metrics

    def _explain(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self.settings.timeout_seconds:g} seconds"
        if isinstance(error, OutletUnavailable):
            return str(error)[:_REASON_CHARACTERS]
        logger.error("Outlet %s has a defect; its events are kept.", self.settings.name, exc_info=error)
        return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]

    def _log_once(self, reason: str) -> None:
        # once per reason, not per try or session: a night's outage is one line
        if reason not in self._logged and len(self._logged) < _LOGGED_REASONS:
            self._logged.add(reason)
            logger.warning(
                "Outlet %s waits and will try again: %s", self.settings.name, printable_line(reason)
            )

    def _gauge_failing(self) -> None:
        failing = 1 if self.reason or self._failing else 0
        self._metrics.gauge("delivery_failing").set(failing, self.settings.name)

    def _gauge_sessions(self) -> None:
        self._metrics.gauge("delivery_sessions").set(len(self.sessions), self.settings.name)
