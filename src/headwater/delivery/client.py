"""The delivery library: accepts batches and sends their events by session until the receiver has them.

    with Client(settings) as client:            # a thread of its own
        client.add_events([{"run": "a", "text": "hello"}])

    async with Client(settings) as client:      # the caller's loop
        client.add_events([{"run": "a", "text": "hello"}])
        await client.aflush()

Both run the same scheduler, on a loop of its own or of the caller. There is no log behind it: events that are
not delivered are in memory, within the budgets, and `close` returns them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import orjson

from headwater.clock import Clock, SystemClock
from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import Outlet, load_outlet
from headwater.delivery.scheduler import Scheduler
from headwater.delivery.sessions import Session
from headwater.errors import BatchRejected
from headwater.events import EVENT_COST, Event, fitted
from headwater.formats.printable import printable_line
from headwater.metrics import Metrics
from headwater.settings import OutletSettings
from headwater.system.event_loop import new_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")

Rejected = Sequence[tuple[Event, str]]


class Statistics(msgspec.Struct, frozen=True):
    """The counts of a client. accepted = delivered + rejected + waiting, at every moment.

    `waiting_bytes` is what counts towards `budget_bytes`, and `fullest_session_bytes` towards
    `session_budget_bytes`: the events' bodies and EVENT_COST each.
    """

    accepted: int
    delivered: int
    rejected: int
    waiting: int
    waiting_bytes: int
    fullest_session_bytes: int
    batches_refused: int
    bytes_delivered: int
    sessions: int
    sessions_failing: int
    in_flight: int


class _Error(NamedTuple):
    """Error mode: when it ends, on the loop's clock, and its reason."""

    until: float
    reason: str


class Client:
    """Delivers events to one outlet. `add_events` may be called from any thread, in parallel."""

    def __init__(
        self,
        settings: OutletSettings,
        outlet: Outlet | None = None,
        *,
        on_rejected: Callable[[Rejected], None] | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`on_rejected` gets the events that the receiver refused for good, in the scheduler's thread."""
        self.id = uuid.uuid4().hex
        self._settings = settings
        self._clock = clock or SystemClock()
        self._metrics = metrics or Metrics()
        self._on_rejected = on_rejected
        outlet = outlet or load_outlet(settings)
        self._keys = outlet.keys()
        self._scheduler = Scheduler(
            outlet,
            self,
            client_id=self.id,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # The lock guards the following fields, which callers in all threads and the loop share.
        self._lock = threading.Lock()
        self._inbox: deque[tuple[Key, Event]] = deque()
        self._held: dict[str, int] = {}  # cost per key, from acceptance until settled
        self._held_bytes = 0
        self._errors: dict[str, _Error] = {}  # error mode, per key
        self._paused: _Error | None = None  # error mode of all sessions, while the receiver asks for a pause
        self._accepted = 0
        self._delivered = 0
        self._rejected = 0
        self._bytes_delivered = 0
        self._batches_refused = 0
        self._is_closed = False
        self._is_over = False
        self._waiters: list[tuple[set[int], asyncio.Future[None]]] = []  # on the loop only

    # --- taking in

    def add_events(self, events: Sequence[bytes | Mapping[str, Any]]) -> None:
        """Accept the whole batch, or raise BatchRejected and accept nothing of it.

        Returns at once; an accepted event is delivered, rejected by the receiver, or handed back by `close`.
        """
        now = self._clock.now()
        # also bodies that came as bytes: the slack of their encoder would stay in our memory
        bodies = [fitted(event if isinstance(event, bytes) else orjson.dumps(event)) for event in events]
        total = sum(map(_cost, bodies))
        if total <= self._scheduler.outlet.session_bytes:
            with self._lock:
                # Before the keys are computed, which takes far longer: a refused caller soon tries again.
                # A larger batch may never fit one of its sessions, and that error comes first.
                self._admit(total)
        keys = [self._keys.of(body) for body in bodies]
        coming: dict[str, int] = {}
        for key, body in zip(keys, bodies, strict=True):
            coming[key.id] = coming.get(key.id, 0) + _cost(body)
        loop = self._running_loop()
        with self._lock:
            self._admit(total, coming, loop.time())
            for id, size in coming.items():
                self._held[id] = self._held.get(id, 0) + size
            self._held_bytes += total
            is_first = not self._inbox
            for key, body in zip(keys, bodies, strict=True):
                self._accepted += 1
                self._inbox.append((key, Event(self._accepted, now, body)))
            if is_first and bodies:
                # under the lock: `close` may not stop the loop between the acceptance and this call
                loop.call_soon_threadsafe(self._take_in)

    def _admit(self, total: int, coming: Mapping[str, int] | None = None, now: float = 0.0) -> None:
        """Count and raise BatchRejected if a batch of `total` bytes, `coming` by key, cannot be accepted."""
        name = self._settings.name
        try:
            if self._is_closed:
                raise BatchRejected(f"The client of outlet {name} is closed.", retryable=False)
            self._admit_sessions(coming or {}, now)
            if self._held_bytes + total > self._settings.budget_bytes:
                budget = self._settings.budget_bytes
                raise _over_budget(f"The client of outlet {name}", total, "budget_bytes", budget)
        except BatchRejected:
            self._batches_refused += 1
            raise

    def _admit_sessions(self, coming: Mapping[str, int], now: float) -> None:
        """Error mode and budgets are kept by session: a failing session does not stop the others."""
        name, settings = self._settings.name, self._settings
        budget = self._scheduler.outlet.session_bytes
        if coming and self._paused is not None and self._paused.until > now:
            raise BatchRejected(
                f"Outlet {name} is asked to pause: {self._paused.reason}.",
                hint="Send the batch again later.",
                retry_after_seconds=self._paused.until - now,
            )
        for id, size in coming.items():
            error = self._errors.get(id)
            if error is not None and error.until > now:
                raise BatchRejected(
                    f"Session {self.id}-{id} of outlet {name} is in error: {error.reason}.",
                    hint="Send the batch again later.",
                    retry_after_seconds=min(error.until - now, settings.retry.max_seconds),
                )
            if self._held.get(id, 0) + size > budget:
                raise _over_budget(f"A session of outlet {name}", size, "session_budget_bytes", budget)

    def _take_in(self) -> None:
        with self._lock:
            arrived, self._inbox = self._inbox, deque()
        for key, event in arrived:
            self._scheduler.put(key, event)

    # --- called by the scheduler

    def on_settled(self, session: Session, delivered: list[Event], refused: list[tuple[Event, str]]) -> bool:
        done = [*delivered, *(event for event, _ in refused)]
        size = sum(_cost(event.body) for event in done)
        sent = sum(len(event.body) for event in delivered)
        id = session.key.id
        with self._lock:
            self._held_bytes -= size
            self._held[id] -= size
            if not self._held[id]:
                del self._held[id]
            if not session.is_failing:
                self._errors.pop(id, None)
            self._delivered += len(delivered)
            self._rejected += len(refused)
            self._bytes_delivered += sent
        self._metrics.counter("delivery_events_delivered").add(len(delivered), self._settings.name)
        self._metrics.counter("delivery_events_rejected").add(len(refused), self._settings.name)
        self._metrics.counter("delivery_bytes_sent").add(sent, self._settings.name)
        if refused:
            self._report(refused)
        for positions, waiter in self._waiters:
            positions.difference_update(event.position for event in done)
            if not positions and not waiter.done():
                waiter.set_result(None)
        return False

    def retries_refused(self, event: Event) -> bool:
        return self._settings.on_refused == "block"

    def on_retry_scheduled(self, session: Session) -> None:
        """Begin the session's error mode, which ends by a try that succeeds, or after some time."""
        id = session.key.id
        now = self._scheduler.now()
        with self._lock:
            error = self._errors.get(id)
            until = error.until if error is not None and error.until > now else None
            self._errors[id] = _Error(until or now + self._settings.recovery_seconds, session.reason)
            if (paused_until := self._scheduler.paused_until) > now:
                self._paused = _Error(paused_until, session.reason)

    def _report(self, refused: Rejected) -> None:
        if self._on_rejected is None:
            logger.error(
                "Outlet %s refused %d events for good; they are lost, since no `on_rejected` takes them: %s",
                self._settings.name,
                len(refused),
                printable_line(refused[0][1]),
            )
            return
        try:
            self._on_rejected(refused)
        except Exception:
            logger.exception(
                "`on_rejected` of outlet %s failed; %d events", self._settings.name, len(refused)
            )

    # --- state

    def statistics(self) -> Statistics:
        """A snapshot; may be called from any thread."""
        with self._lock:
            return Statistics(
                accepted=self._accepted,
                delivered=self._delivered,
                rejected=self._rejected,
                waiting=self._accepted - self._delivered - self._rejected,
                waiting_bytes=self._held_bytes,
                fullest_session_bytes=max(self._held.values(), default=0),
                batches_refused=self._batches_refused,
                bytes_delivered=self._bytes_delivered,
                sessions=len(self._held),
                sessions_failing=self._scheduler.failing,
                in_flight=self._scheduler.in_flight,
            )

    def trouble(self) -> str | None:
        """The reason why events do not move; None if they do."""
        return self._scheduler.trouble()

    # --- waiting and ending

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Send accepted events without waiting for fuller batches; return whether all of them are settled."""
        if self._is_over:
            return self.statistics().waiting == 0
        return await self._on_loop(self._flush(timeout_seconds))

    async def aclose(self, timeout_seconds: float = 30.0) -> list[Event]:
        """`close` for coroutines."""
        if self._is_over:
            return []
        left = await self._on_loop(self._close(timeout_seconds))
        self._join()
        return left

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """`aflush` for threads."""
        if self._is_over:
            return self.statistics().waiting == 0
        return self._from_thread(self._flush(timeout_seconds))

    def close(self, timeout_seconds: float = 30.0) -> list[Event]:
        """Accept nothing more, send events until the timeout, and return exactly those left, in order.

        An event whose request was cut off by the timeout is among them, though it may have arrived. A second
        call returns an empty list.
        """
        if self._is_over:
            return []
        left = self._from_thread(self._close(timeout_seconds))
        self._join()
        return left

    async def _flush(self, timeout_seconds: float | None) -> bool:
        self._take_in()
        with self._lock:
            newest = self._accepted
        positions = {event.position for event in self._scheduler.remaining()}
        if not positions:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (positions, waiter)
        self._waiters.append(entry)
        self._scheduler.hurry(newest)
        try:
            await asyncio.wait_for(waiter, timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(entry)
        return True

    async def _close(self, timeout_seconds: float) -> list[Event]:
        with self._lock:
            self._is_closed = True
        await self._flush(timeout_seconds)
        await self._scheduler.stop(0.0)
        self._is_over = True
        return sorted(self._scheduler.remaining())

    # --- the loop and its thread

    def __enter__(self) -> Self:
        self._running_loop()
        return self

    def __exit__(self, *_: object) -> None:
        self._log_left(self.close())

    async def __aenter__(self) -> Self:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._log_left(await self.aclose())

    def _log_left(self, left: list[Event]) -> None:
        if left:
            logger.error(
                "The client of outlet %s was closed with %d events left.", self._settings.name, len(left)
            )

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = new_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=f"delivery-{self._settings.name}", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._running_loop()
        if loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def _from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._running_loop()).result()

    def _join(self) -> None:
        """End our own thread, if there is one."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()


def _cost(body: bytes) -> int:
    """The bytes of an event that count towards the budgets of memory (G8)."""
    return len(body) + EVENT_COST


def _over_budget(who: str, size: int, setting: str, budget: int) -> BatchRejected:
    fits = size <= budget
    return BatchRejected(
        f"{who} would hold more than {budget} bytes.",
        hint="Send the batch again later."
        if fits
        else f"It can never fit: send smaller batches or raise `{setting}`.",
        retryable=fits,
    )
