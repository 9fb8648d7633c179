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
    from headwater.http.routing.router import Route


FRAMING_FACTOR = 8  # bytes of chunk sizes per byte of the body; 5 if each byte is a chunk


class Request:
    """One request. `respond` may be called later, in the loop's thread; the connection keeps the order.

    `body` is without its Content-Encoding; `problem` says why it could not be decoded. Header names are lower
    case. `arrived` counts the body's bytes as they were sent, `framing` the other bytes, and `unproductive`
    those of them since the last byte of the body. `size` is the memory of the request, its head included,
    which counts against `gateway.max_pending_bytes` until the request is answered. `caller` is set by
    `Route.before_body`. `answered` is called with the response.
    """

    __slots__ = (
        "answered",
        "arrived",
        "body",
        "buffer",
        "caller",
        "closes",
        "connection",
        "decoder",
        "finished_at",
        "framing",
        "headers",
        "is_slowed",
        "method",
        "packed",
        "path_parameters",
        "problem",
        "refusal",
        "response",
        "route",
        "size",
        "stream",
        "target",
        "unproductive",
        "version",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.method = ""
        self.target = b""
        self.version = "1.1"
        self.headers: dict[str, str] = {}
        self.body = b""
        self.buffer: bytearray | None = None  # the body, while it arrives in several parts
        self.decoder: BodyDecoder | None = None
        self.packed = bytearray()  # not decoded yet
        self.problem: Problem | None = None
        self.arrived = 0
        self.framing = 0
        self.unproductive = 0
        self.size = 0
        self.closes = False
        self.is_slowed = False
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

    @property
    def body_bytes(self) -> int:
        """Bytes of the body that are in memory."""
        return len(self.body) + (len(self.buffer) if self.buffer is not None else 0)

    def read_body(self) -> bytes:
        """Return the body without its Content-Encoding; Problem if it could not be decoded."""
        if self.problem is not None:
            raise self.problem
        return self.body

    def append(self, part: bytes) -> None:
        """Add a part of the body. Many tiny parts take no more memory than a large one."""
        if self.buffer is not None:
            self.buffer += part
        elif self.body:
            self.buffer, self.body = bytearray(self.body), b""
            self.buffer += part
        else:
            self.body = part
        self.reserve(len(part))

    def complete(self) -> None:
        """Make the body of its parts, after the last one; check that a compressed one is whole."""
        decoder, self.decoder = self.decoder, None
        if decoder is not None:
            self.reserve(-decoder.memory)
            try:
                decoder.finish()
            except Problem as problem:
                self.problem = problem
        if self.buffer is not None:
            self.body, self.buffer = bytes(self.buffer), None

    def decode(self) -> None:
        """Add what has arrived of a compressed body: once for all chunks that came together."""
        if self.decoder is None or not self.packed:
            return
        packed, self.packed = bytes(self.packed), bytearray()
        memory = self.decoder.memory
        try:
            self.append(self.decoder.feed(packed))
            self.reserve(self.decoder.memory - memory)
        except Problem as problem:
            self.problem = problem
            self.release()

    def reserve(self, size: int) -> None:
        """Count memory that the request takes beyond its body, such as a copy of it."""
        self.size += size
        self.connection.server.pending_bytes += size

    def count_framing(self, size: int, most: int, is_unproductive: bool) -> bool:
        """Count bytes that are not the body's; return whether there are too many."""
        self.unproductive = self.unproductive + size if is_unproductive else 0
        self.framing += size
        if self.framing <= most:
            self.reserve(size)  # beyond it they are no longer in memory, only counted
        return self.unproductive > most or self.framing > most + FRAMING_FACTOR * self.arrived

    def release(self) -> None:
        """Drop the body, and no longer count the memory."""
        self.connection.server.pending_bytes -= self.size
        self.size = 0
        self.body = b""
        self.buffer = self.decoder = None

    def respond(self, response: Response) -> None:
        """Answer, once. The bytes are sent when all earlier requests of the connection are answered."""
        if self.response is not None:
            return
        server = self.connection.server
        if response.status == 401 and not self.is_slowed and (seconds := server.seconds_to_slow(self)):
            self._respond_later(response, seconds)
            return
        self.response = response
        self.release()
        if self.answered is not None:
            self.answered(response)
        server.count_response(self, response.status)
        self.connection.flush()

    def _respond_later(self, response: Response, seconds: float) -> None:
        """Answer a wrong key, after a pause, as the last request of its connection."""
        self.is_slowed = self.closes = True
        self.release()
        self.headers, self.target = {}, b""  # the client may leave meanwhile, and come again
        self.connection.read_no_more()
        asyncio.get_running_loop().call_later(seconds, self.respond, response)

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
