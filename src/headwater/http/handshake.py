"""The TLS handshake of a new connection, which takes a place from the moment it is accepted (G8)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, cast

from headwater.http.admission import peer_address
from headwater.http.connection import SURPLUS_SECONDS, Connection

if TYPE_CHECKING:
    from headwater.http.server import HttpServer

HANDSHAKE_SECONDS = 10.0


class Handshake(asyncio.Protocol):
    """One client that has not shown yet that it speaks TLS; afterwards its place belongs to a `Connection`.

    The server accepts the socket without TLS, because asyncio reports a connection with TLS only after the
    handshake, and any number of silent ones would be held until then.
    """

    def __init__(self, server: HttpServer, context: ssl.SSLContext) -> None:
        self.deadline = 0.0
        self.is_blocked = False
        self._server = server
        self._context = context
        self._task: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)
        server = self._server
        refusal = server.admission.add(self, peer_address(plain))
        self.deadline = server.monotonic() + (HANDSHAKE_SECONDS if refusal is None else SURPLUS_SECONDS)
        try:
            client = socket.socket(fileno=os.dup(plain.get_extra_info("socket").fileno()))
        except OSError:  # no file descriptor is left
            server.remove(self)
            return
        finally:
            plain.abort()  # closes this descriptor alone: nothing was read by it
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(
            loop.connect_accepted_socket(
                lambda: Connection(server, self),
                client,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        )
        self._task.add_done_callback(partial(self._end, client))

    def _end(self, client: socket.socket, task: asyncio.Task[object]) -> None:
        if task.cancelled() or task.exception() is not None:  # not TLS, no certificate, too late, or gone
            client.close()
        self._server.remove(self)  # unless the connection has taken the place

    def is_slow(self, now: float, *, arriving_only: bool) -> bool:
        """Whether the client should give way; the deadline of a handshake is short anyway."""
        return False

    def expire(self) -> None:
        """Act on the deadline, which has passed."""
        self.abort()

    def stop(self) -> None:
        """Close: no request has begun."""
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._task is not None:
            self._task.cancel()
