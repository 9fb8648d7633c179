"""Runs the work of large requests in slices, so that other requests come in between (G7)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from headwater.http.connection import Connection
from headwater.http.request import Request

SLICE_BYTES = 64 * 1024  # of events, about a millisecond of CPU time; then the loop serves others
EVENT_BYTES = 256  # what an event costs at least, however short it is
_DONE = object()


class Slices:
    """Runs generators that yield after each slice; requests of one connection stay in order (G2).

    `busy` has the connections whose last request is not finished. While there are any, each request has to
    be run here.
    """

    def __init__(self) -> None:
        self.busy: dict[Connection, asyncio.Event] = {}

    def run(self, request: Request, steps: Iterator[None]) -> Coroutine[Any, Any, None] | None:
        """Run the first slice; return the rest as a coroutine, or None if there is none."""
        connection = request.connection
        previous = self.busy.get(connection)
        if previous is None and next(steps, _DONE) is _DONE:
            return None
        finished = self.busy[connection] = asyncio.Event()
        return self._run(connection, previous, finished, steps)

    async def _run(
        self,
        connection: Connection,
        previous: asyncio.Event | None,
        finished: asyncio.Event,
        steps: Iterator[None],
    ) -> None:
        try:
            if previous is not None:
                await previous.wait()
            else:
                await asyncio.sleep(0)
            for _ in steps:
                await asyncio.sleep(0)
        finally:
            finished.set()
            if self.busy.get(connection) is finished:
                del self.busy[connection]
