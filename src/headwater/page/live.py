"""Server-sent events: views when they change, and events as they arrive.

A view is rendered every second by the function that made the page, while browsers show it, and sent when it
has changed. All viewers of one address share its rendering.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import orjson

from headwater.graph.query.query import ClientGone
from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.page.templates import NO_STORE_HEADERS
from headwater.page.views.event_tail import EventTail

INTERVAL_SECONDS = 1.0
QUIET_SECONDS = 15.0  # without an event, after which a comment keeps the connection alive
MAX_STREAMS = 40  # each costs some milliseconds a second (G7, G8)
MAX_STREAMS_OF_CLIENT = 20
EVENT_STREAM = "text/event-stream; charset=utf-8"


class LiveStreams:
    """All event streams of one server."""

    def __init__(
        self,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        client_of: Callable[[Request], str] = lambda request: request.peer,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._client_of = client_of
        self._count: Counter[str] = Counter()  # by the address of the client
        self._renderings: dict[str, tuple[float, asyncio.Task[str]]] = {}  # by address: since when, and it
        self._is_closed = False

    def close(self) -> None:
        """End the streams: open streams would delay the stop of the server."""
        self._is_closed = True

    async def send_view(
        self, request: Request, address: str, make: Callable[[], Coroutine[Any, Any, str]]
    ) -> None:
        """Send the view of an address whenever it has changed."""
        last = ""

        async def changed() -> list[bytes]:
            nonlocal last
            text = await self._rendered(address, make)
            if text == last:
                return []
            last = text
            return [_event("view", orjson.dumps(text))]

        await self._stream(request, changed)

    async def _rendered(self, address: str, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """The rendering of an address that is not older than an interval."""
        now = time.monotonic()
        since, rendering = self._renderings.get(address, (0.0, None))
        if rendering is None or now - since >= 0.9 * self._interval_seconds:
            old = [key for key, (at, _) in self._renderings.items() if now - at > QUIET_SECONDS]
            for key in old:
                del self._renderings[key]
            rendering = asyncio.create_task(make())
            self._renderings[address] = now, rendering
        try:
            return await asyncio.shield(rendering)
        except ClientGone:  # the viewer for whom it was made has left; another one needs it
            return await make()

    async def send_events(self, request: Request, tail: EventTail) -> None:
        """Send events as they arrive."""

        async def new_events() -> list[bytes]:
            found, missed = await asyncio.to_thread(tail.poll)
            events = [_event("events", msgspec.json.encode(found))] if found else []
            return [*events, _event("missed", b"%d" % missed)] if missed else events

        await self._stream(request, new_events)

    async def _stream(self, request: Request, next_events: Callable[[], Awaitable[list[bytes]]]) -> None:
        client = self._client_of(request)
        if self._count.total() >= MAX_STREAMS or self._count[client] >= MAX_STREAMS_OF_CLIENT:
            raise Problem(
                503,
                "too_many",
                "Too many live pages are open.",
                hint="Close one of them.",
                headers={"Retry-After": "10"},
            )
        self._count[client] += 1
        try:
            first = await next_events()  # before the headers: an error here is still a response
            stream = request.start_stream(content_type=EVENT_STREAM, headers=NO_STORE_HEADERS)
            await stream.write(b"retry: 2000\n\n" + b"".join(first))
            sent_at = time.monotonic()
            while not self._is_closed and not request.is_abandoned:
                await asyncio.sleep(self._interval_seconds)
                events = await next_events()
                if events or time.monotonic() - sent_at > QUIET_SECONDS:
                    await stream.write(b"".join(events) or b": keep-alive\n\n")
                    sent_at = time.monotonic()
            stream.close()
        except ClientGone as error:
            raise ConnectionResetError(error.text) from error  # no one is left to answer
        finally:
            self._count[client] -= 1
            if not self._count[client]:
                del self._count[client]


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
