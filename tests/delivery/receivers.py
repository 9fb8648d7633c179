"""Outlets for tests of the scheduler: real ones by the contract, whose receiver is a list in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from headwater.delivery.outlets.base import DELIVERED, Batch, NoOptions, Outlet, Results
from headwater.events import Event
from headwater.settings import OutletSettings, RetrySettings

QUICK = RetrySettings(initial_seconds=0.001, max_seconds=0.005)

Act = Callable[[Batch], Results | Exception | float | None]


def settings_of(**settings: Any) -> OutletSettings:
    defaults: dict[str, Any] = {"name": "memory", "type": "memory", "retry": QUICK}
    return OutletSettings(**(defaults | settings))


class Memory(Outlet):
    """Keeps what it is sent. `act` may say results, an error to raise, or seconds to wait first.

    Watches the contract: two sends of a session at once, or a request over the limit, are `violations`.
    """

    def __init__(
        self,
        settings: OutletSettings | None = None,
        act: Act | None = None,
        *,
        hard: int | None = None,
        connect: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(NoOptions(), settings or settings_of())
        self.act = act or (lambda batch: None)
        self.hard = hard
        self.keeps_bodies = True
        self.deliveries = 0
        self.received: list[Event] = []
        self.pieces: list[bytes] = []
        self.batches: list[Batch] = []
        self.violations: list[str] = []
        self.most_at_once = 0
        self.connects = 0
        self.is_closed = False
        self._connect = connect
        self._busy: set[str] = set()

    @property
    def max_request_bytes(self) -> int | None:
        return self.hard

    async def connect(self) -> None:
        self.connects += 1
        if self._connect is not None:
            self._connect()

    async def close(self) -> None:
        self.is_closed = True

    async def send(self, batch: Batch) -> Results:
        self._check(batch)
        self._busy.add(batch.session)
        self.most_at_once = max(self.most_at_once, len(self._busy))
        try:
            reply = self.act(batch)
            if isinstance(reply, float):
                await asyncio.sleep(reply)
                reply = None
            else:
                await asyncio.sleep(0)
            if isinstance(reply, Exception):
                raise reply
            results = reply if reply is not None else [DELIVERED] * len(batch.events)
            for event, piece, result in zip(batch.events, batch.pieces, results, strict=False):
                if result is DELIVERED:
                    self.deliveries += 1
                    if self.keeps_bodies:
                        self.received.append(event)
                        self.pieces.append(piece)
            return results
        finally:
            self._busy.discard(batch.session)

    def _check(self, batch: Batch) -> None:
        if self.keeps_bodies:
            self.batches.append(batch)
        if batch.session in self._busy:
            self.violations.append(f"two requests of {batch.session} at once")
        size = sum(map(len, batch.pieces)) + len(batch.pieces) + 1
        if self.hard is not None and size > self.hard:
            self.violations.append(f"{size} bytes in a request")
        if len(batch.events) > self.batch_events:
            self.violations.append(f"{len(batch.events)} events in a request")

    def numbers(self, key: object = None) -> list[int]:
        """The field `i` of what arrived, in order; with a key, of the events that have it."""
        parsed = [orjson.loads(event.body) for event in list(self.received)]
        return [event["i"] for event in parsed if key is None or event.get("k") == key]
