"""What all connections of one gateway share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.gateway import refusals
from headwater.gateway.requests import Request
from headwater.gateway.responses import Response
from headwater.settings import GatewaySettings

if TYPE_CHECKING:
    from headwater.gateway.http import Connection

__all__ = ["Wire"]


class Wire:
    """What all connections of one gateway share: the limits, the way to the application, the date."""

    def __init__(
        self,
        settings: GatewaySettings,
        clock: Clock,
        *,
        admit: Callable[[Request], Response | None],
        handle: Callable[[Request], None],
        answered: Callable[[Request, int], None],
    ) -> None:
        self.settings = settings
        self.monotonic = clock.monotonic
        self._wall = clock.now
        self.admit = admit  # at the end of the headers: an answer that needs no body, such as 404 or 401
        self.handle = handle
        self.answered = answered
        self.connections: set[Connection] = set()
        self.pending_bytes = 0
        self.stopping = False
        self._empty = asyncio.Event()
        self.date = b""
        self.too_large = refusals.body_too_large(settings.max_body_bytes)
        self.sweep()

    def sweep(self) -> None:
        """One look at all connections instead of a timer for each; also brings the date up to date."""
        self.date = formatdate(self._wall(), usegmt=True).encode()
        now = self.monotonic()
        for connection in [each for each in self.connections if each.deadline <= now]:
            connection.expire()

    @property
    def room(self) -> int:
        """Bytes that may still be taken into memory."""
        return self.settings.max_pending_bytes - self.pending_bytes

    def left(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if self.stopping and not self.connections:
            self._empty.set()

    def stop(self) -> None:
        """From now on every answer closes its connection, and new requests are answered 503."""
        self.stopping = True
        for connection in list(self.connections):
            connection.stop()
        if not self.connections:
            self._empty.set()

    async def emptied(self, timeout_seconds: float) -> None:
        """Wait, after `stop`, until the last connection has ended, or for as long as is allowed."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_seconds)
        except TimeoutError:
            pass  # the caller cuts what is left
