"""Requests: one request of a connection, and its place in the order of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from headwater.http.response import JSON, Response

if TYPE_CHECKING:
    from headwater.http.connection import Connection

__all__ = ["Request", "Stream"]


class Request:
    """One request. `respond` may be called later, by the loop's thread; the order of answers is kept for you.

    `body` is what came over the wire, still encoded as `content-encoding` says. Header names are lower case.
    `arrived` counts the body's bytes; `size` is what the request holds in memory, which counts against
    `gateway.max_pending_bytes` until it is answered. `sender` is what a route found out by the head.
    """

    __slots__ = (
        "arrived",
        "body",
        "chunks",
        "closes",
        "connection",
        "finished_at",
        "headers",
        "method",
        "refusal",
        "response",
        "route",
        "sender",
        "size",
        "stream",
        "target",
        "version",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.method = ""
        self.target = b""
        self.version = "1.1"
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.body = b""
        self.arrived = 0
        self.size = 0
        self.closes = False
        self.refusal: Response | None = None
        self.response: Response | None = None
        self.stream: Stream | None = None
        self.route: Any = None
        self.sender: Any = None
        self.finished_at = 0.0

    @property
    def path(self) -> str:
        """The decoded path, without the query."""
        target = self.target.decode("latin-1")
        if not target.startswith("/"):
            try:
                target = urlsplit(target).path or "/"  # a proxy's form: http://host/path
            except ValueError:
                return "/"
        return unquote(target.partition("?")[0])

    @property
    def query(self) -> str:
        """What follows the question mark, still encoded."""
        return self.target.decode("latin-1").partition("?")[2]

    @property
    def peer(self) -> str:
        """The address at the other end of the connection."""
        return self.connection.peer

    def hold(self, size: int) -> None:
        """Count bytes that the request takes beyond its body, such as the decompressed form."""
        self.size += size
        self.connection.wire.pending_bytes += size

    def release(self) -> None:
        """Give back what was counted; the body is not needed any more."""
        self.connection.wire.pending_bytes -= self.size
        self.size = 0
        self.body = b""
        self.chunks = []

    def respond(self, response: Response) -> None:
        """Answer, once. The bytes go out when all earlier requests of the connection are answered."""
        if self.response is not None:
            return
        self.response = response
        self.release()
        self.connection.wire.answered(self, response.status)
        self.connection.flush()

    def start_stream(
        self, status: int = 200, *, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> Stream:
        """Answer bit by bit, such as server-sent events. The connection is closed at the end of it."""
        stream = Stream(self)
        self.stream = stream
        self.respond(
            Response(status, content_type=content_type, headers=headers or {}, streamed=True, close=True)
        )
        return stream


class Stream:
    """An answer that is written bit by bit; `write` waits while the client does not read."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.parts: list[bytes] = []
        self.has_begun = False
        self.has_ended = False

    @property
    def lost(self) -> bool:
        """Whether the client has gone."""
        return self._request.connection.is_closed

    async def write(self, data: bytes) -> None:
        """Send a part. Raises ConnectionResetError when the client has gone."""
        connection = self._request.connection
        while connection.is_blocked or len(self.parts) > 16:
            if self.lost:
                break
            await asyncio.sleep(0.05)
        if self.lost:
            raise ConnectionResetError("the client has gone")
        if data:
            self.parts.append(b"%x\r\n%b\r\n" % (len(data), data))
            connection.flush()

    def close(self) -> None:
        """The end of the answer."""
        if not self.has_ended:
            self.has_ended = True
            self.parts.append(b"0\r\n\r\n")
            self._request.connection.flush()
