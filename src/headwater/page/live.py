"""What moves: server-sent events that bring a view up to date, and the events as they come in.

A view is rendered again by the same function that made the page, every second, for as long as somebody looks
at it, and sent only when it has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import orjson

from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.page.templating import HEADERS
from headwater.page.views.event_tail import Tail

__all__ = ["Live"]

SECONDS = 1.0  # between two looks
QUIET_SECONDS = 15.0  # after which a comment tells both ends that the other is there
MOST = 40  # lookers at once; each costs some milliseconds a second (G7, G8)
EVENT_STREAM = "text/event-stream; charset=utf-8"


class Live:
    """All streams of one server."""

    def __init__(self) -> None:
        self._count = 0
        self._is_closed = False

    def close(self) -> None:
        """Let the streams end: nobody shall wait for them when the server stops."""
        self._is_closed = True

    async def view(self, request: Request, make: Callable[[], Awaitable[str]]) -> None:
        """Send a view whenever it has changed."""
        last = ""

        async def changed() -> list[bytes]:
            nonlocal last
            text = await make()
            if text == last:
                return []
            last = text
            return [_event("view", orjson.dumps(text))]

        await self._stream(request, changed)

    async def tail(self, request: Request, tail: Tail) -> None:
        """Send events as they come in."""

        async def arrived() -> list[bytes]:
            found, missed = await asyncio.to_thread(tail.look)
            events = [_event("arrivals", msgspec.json.encode(found))] if found else []
            return [*events, _event("missed", b"%d" % missed)] if missed else events

        await self._stream(request, arrived)

    async def _stream(self, request: Request, look: Callable[[], Awaitable[list[bytes]]]) -> None:
        if self._count >= MOST:
            raise Problem(
                503, "too_many", "Too many pages are open.", hint="Close some.", headers={"Retry-After": "10"}
            )
        self._count += 1
        try:
            first = await look()  # before anything is sent: what fails here is still an answer
            stream = request.start_stream(
                content_type=EVENT_STREAM, headers={**HEADERS, "Cache-Control": "no-store"}
            )
            await stream.write(b"retry: 2000\n\n" + b"".join(first))
            spoke = time.monotonic()
            while not self._is_closed and not stream.lost:
                await asyncio.sleep(SECONDS)
                events = await look()
                if events or time.monotonic() - spoke > QUIET_SECONDS:
                    await stream.write(b"".join(events) or b": still here\n\n")
                    spoke = time.monotonic()
            stream.close()
        finally:
            self._count -= 1


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
