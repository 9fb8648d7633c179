"""One HTTP request of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headwater.http.decompress import BodyDecoder
from headwater.http.response import JSON, Problem, Response

if TYPE_CHECKING:
    from headwater.http.connection import Connection
    from headwater.http.router import Route


class Request:
    """One request. `respond` may be called later, in the loop's thread; the connection keeps the order.

    `body` is without its Content-Encoding; `problem` says why it could not be decoded. Header names are lower
    case. `arrived` counts the body's bytes as they were sent. `size` is the memory of the request, which
    counts against `gateway.max_pending_bytes` until the request is answered. `caller` is set by
    `Route.before_body`. `answered` is called with the response.
    """

    __slots__ = (
        "answered",
        "arrived",
        "body",
        "caller",
        "chunks",
        "closes",
        "connection",
        "decoder",
        "finished_at",
        "headers",
        "method",
        "path_parameters",
        "problem",
        "refusal",
        "response",
        "route",
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
        self.decoder: BodyDecoder | None = None
        self.problem: Problem | None = None
        self.arrived = 0
        self.size = 0
        self.closes = False
        self.refusal: Response | None = None
        self.response: Response | None = None
        self.stream: Stream | None = None
        self.route: Route | None = None
        self.path_parameters: Mapping[str, str] = _NO_PARAMETERS
        self.caller: object = None
        self.answered: Callable[[Response], None] | None = None
        self.finished_at = 0.0

    @property
    def raw_path(self) -> str:
        """The path as it was sent: `%2F` is not decoded."""
        target = self.target.decode("latin-1")
        if not target.startswith("/"):
            try:
                target = urlsplit(target).path or "/"  # the form for proxies: http://host/path
            except ValueError:
                return "/"
        return target.partition("?")[0]

    @property
    def path(self) -> str:
        """The decoded path."""
        return unquote(self.raw_path)

    @property
    def query(self) -> str:
        """The query, still encoded."""
        return self.target.decode("latin-1").partition("?")[2]

    @property
    def peer(self) -> str:
        """The address at the other end of the connection."""
        return self.connection.peer

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has closed the connection, or its half of it; may be read by any thread."""
        return self.connection.is_abandoned

    def read_body(self) -> bytes:
        """Return the body without its Content-Encoding; Problem if it could not be decoded."""
        if self.problem is not None:
            raise self.problem
        return self.body

    def reserve(self, size: int) -> None:
        """Count memory that the request takes beyond its body, such as a copy of it."""
        self.size += size
        self.connection.server.pending_bytes += size

    def release(self) -> None:
        """Drop the body, and no longer count its memory."""
        self.connection.server.pending_bytes -= self.size
        self.size = 0
        self.body = b""
        self.chunks = []

    def respond(self, response: Response) -> None:
        """Answer, once. The bytes are sent when all earlier requests of the connection are answered."""
        if self.response is not None:
            return
        self.response = response
        self.release()
        if self.answered is not None:
            self.answered(response)
        self.connection.server.count_response(self, response.status)
        self.connection.flush()

    def start_stream(
        self, status: int = 200, *, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> Stream:
        """Answer in parts, such as server-sent events. The connection is closed after the last part."""
        stream = Stream(self)
        self.stream = stream
        self.respond(
            Response(status, content_type=content_type, headers=headers or {}, streamed=True, close=True)
        )
        return stream


class Stream:
    """A response that is written in parts; `write` waits while the client does not read."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.parts: list[bytes] = []
        self.has_begun = False
        self.has_ended = False

    @property
    def lost(self) -> bool:
        """Whether the client has disconnected."""
        return self._request.connection.is_closed

    async def write(self, data: bytes) -> None:
        """Send a part; ConnectionResetError if the client has disconnected."""
        connection = self._request.connection
        while connection.is_blocked or len(self.parts) > 16:
            if self.lost:
                break
            await asyncio.sleep(0.05)
        if self.lost:
            raise ConnectionResetError("the client has disconnected")
        if data:
            self.parts.append(b"%x\r\n%b\r\n" % (len(data), data))
            connection.flush()

    def close(self) -> None:
        """End the response."""
        if not self.has_ended:
            self.has_ended = True
            self.parts.append(b"0\r\n\r\n")
            self._request.connection.flush()


_NO_PARAMETERS: Mapping[str, str] = {}
