"""One client connection: HTTP/1.1 over asyncio, parsed by httptools.

There is no task and no timer per request: the parser calls back, a complete request goes to
`HttpServer.handle` in the same call, and its handler calls `Request.respond` now or later.

Everything that a client can make grow is bounded here (G8, G12): head and body bytes, connections, pipelined
requests, bytes in memory, the time that a request takes to arrive and a response to be read.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from headwater.http import response as responses
from headwater.http.decompress import decoder_of
from headwater.http.request import Request, Stream
from headwater.http.response import Problem, Response

if TYPE_CHECKING:
    from headwater.http.server import HttpServer

MAX_PIPELINED = 64  # unanswered requests of one connection at which reading pauses
SLICE_BYTES = 16 * 1024  # the parser cannot be paused, so this much may be parsed beyond MAX_PIPELINED
LINGER_SECONDS = 2.0  # time for a client to read a refusal before its unread bytes cause a reset
STOP_GRACE_SECONDS = 0.5  # time for a request that was in transit when the server began to stop
_NAMES = ("host", "content-type", "content-length", "content-encoding", "user-agent", "authorization")
_USUAL = {spelling.encode(): name for name in _NAMES for spelling in (name, name.title())}


class _Stop(Exception):
    """Leaves the parser in the middle of a request whose response is decided."""


class Connection(asyncio.Protocol):
    """One client. Responses are sent in the order of the requests, in whichever order handlers give them."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.deadline = math.inf
        self.is_blocked = False  # the client does not read its responses
        self.is_closed = False
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._queue: deque[Request] = deque()
        self._arriving: Request | None = None
        self._head_open = False
        self._head_bytes = 0
        self._held = b""
        self._is_paused = False
        self._ignores = False  # nothing more is read: the last response is decided
        self._is_finishing = False
        self._has_eof = False
        self._upgrades = False
        self._owes_continue = False

    # --- called by asyncio -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server = self.server
        server.connections.add(self)
        if len(server.connections) > server.settings.max_connections:
            if len(server.connections) > 2 * server.settings.max_connections:
                self._transport.abort()  # too many even to send a refusal
                return
            self._refuse(responses.TOO_MANY_CONNECTIONS)
            return
        self.deadline = server.monotonic() + server.settings.idle_timeout_seconds

    @property
    def peer(self) -> str:
        """The address at the other end; empty if there is none."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has closed the connection, or its half of it: a closed socket first shows so."""
        return self.is_closed or self._has_eof

    def data_received(self, data: bytes) -> None:
        if self._ignores:
            return
        if self._is_paused:
            self._held += data
        elif len(data) <= SLICE_BYTES:
            self._feed(data)
        else:
            self._feed_slices(data)

    def eof_received(self) -> bool:
        self._ignores = self._has_eof = True
        if self._arriving is not None:
            self._abandon()
        if self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half-closed state
        return bool(self._queue)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._ignores = True
        self.server.remove(self)
        if self._arriving is not None:
            self._abandon()
        self._queue.clear()  # their events, if appended, stay appended

    def pause_writing(self) -> None:
        self.is_blocked = True
        self._pause()
        self.deadline = self.server.monotonic() + self.server.settings.request_timeout_seconds

    def resume_writing(self) -> None:
        self.is_blocked = False
        self._rest()
        self._consider_resuming()

    # --- called by the parser ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._arriving = Request(self)
        self._head_open = True
        self._head_bytes = 0
        self.deadline = self.server.monotonic() + self.server.settings.request_timeout_seconds

    def on_url(self, url: bytes) -> None:
        assert self._arriving is not None
        self._arriving.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_open:
            return  # a trailer: ignored
        assert self._arriving is not None
        headers = self._arriving.headers
        key, text = _USUAL.get(name) or name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        self._head_open = False
        request = self._arriving
        assert request is not None
        parser, headers = self._parser, request.headers
        request.method = parser.get_method().decode("ascii")
        request.version = parser.get_http_version()
        if parser.should_upgrade():
            self._upgrades = True
            return
        request.closes = not parser.should_keep_alive()
        if request.version == "1.1":
            if "host" not in headers:
                self._give_up(responses.NO_HOST)
        elif request.version != "1.0":
            self._give_up(responses.UNKNOWN_VERSION)
        if "transfer-encoding" in headers and headers["transfer-encoding"].lower() != "chunked":
            self._give_up(responses.UNKNOWN_TRANSFER_ENCODING)
        server = self.server
        declared = int(headers.get("content-length", 0))
        request.refusal = server.before_body(request)
        if declared > server.settings.max_body_bytes:
            self._give_up(request.refusal or server.body_too_large)
        if server.is_stopping:
            request.refusal = responses.STOPPING
        elif request.refusal is None and declared > max(0, server.free_bytes):
            request.refusal = responses.BUSY  # a probe without a body is served however busy the server is
        if request.refusal is None and "content-encoding" in headers:
            try:
                request.decoder = decoder_of(headers["content-encoding"], server.settings.max_body_bytes)
            except Problem as problem:
                request.problem = problem
        if "expect" in headers:
            self._expected(request)

    def on_body(self, chunk: bytes) -> None:
        request, server = self._arriving, self.server
        assert request is not None
        request.arrived += len(chunk)
        if request.arrived > server.settings.max_body_bytes:
            self._give_up(request.refusal or server.body_too_large)
        if request.refusal is not None or request.problem is not None:
            return  # read and dropped, so that the client can keep its connection
        if request.decoder is not None:
            try:
                chunk = request.decoder.feed(chunk)
            except Problem as problem:
                request.problem = problem
                request.release()
                return
        request.chunks.append(chunk)
        request.reserve(len(chunk))
        if server.pending_bytes > server.settings.max_pending_bytes:
            request.refusal = responses.BUSY
            request.release()

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        request = self._arriving
        assert request is not None
        self._arriving = None
        self.deadline = math.inf
        request.finished_at = self.server.monotonic()
        self._queue.append(request)
        if request.closes:
            self._ignores = True
        if request.refusal is not None:
            request.respond(request.refusal)
            return
        if request.decoder is not None and request.problem is None:
            try:
                request.decoder.finish()
            except Problem as problem:
                request.problem = problem
        chunks = request.chunks
        request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        request.chunks = []
        self.server.handle(request)
        if len(self._queue) >= MAX_PIPELINED:
            self._pause()

    # --- reading -----------------------------------------------------------------------------------------

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._ignores:
                self._refuse(responses.MALFORMED)
        if self._head_open and not self._ignores:
            self._head_bytes += len(data)
            if self._head_bytes > responses.MAX_HEAD_BYTES:
                self._refuse(responses.HEAD_TOO_LARGE)

    def _feed_slices(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if self._ignores:
                return
            if self._is_paused:
                self._held += view[start:]
                return
            self._feed(view[start : start + SLICE_BYTES])
            if self._arriving is not None and self._arriving.decoder is not None and not self._ignores:
                # Decoding is the costliest work for the fewest bytes: other connections come in between.
                self._held += view[start + SLICE_BYTES :]
                self._pause()
                self._consider_resuming()
                return

    def _decline_upgrade(self, rest: bytes | memoryview) -> None:
        """Serve the request as if it had not offered another protocol, as RFC 9110 allows.

        Java's HTTP clients offer h2c or TLS with ordinary POSTs, and the parser then stops before the body.
        So a fresh parser gets the same head without the offer.
        """
        self._upgrades = False
        request = cast(Request, self._arriving)
        if request.method == "CONNECT":
            self._refuse(responses.CONNECT)
            return
        lines = [b"%b %b HTTP/%b" % (request.method.encode(), request.target, request.version.encode())]
        for name, value in request.headers.items():
            if name not in ("upgrade", "connection", "http2-settings"):
                lines.append(f"{name}: {value}".encode("latin-1"))
        self._parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", b""]))
        if rest and not self._ignores:
            self.data_received(bytes(rest))

    def _expected(self, request: Request) -> None:
        if request.headers["expect"].lower() != "100-continue":
            self._give_up(responses.UNKNOWN_EXPECTATION)
        if request.refusal is not None:
            request.closes = True  # it is unknown whether the body will follow
            self._give_up(request.refusal)
        self._owes_continue = True
        self._settle()

    def _give_up(self, response: Response) -> None:
        self._refuse(response)
        raise _Stop

    def _refuse(self, response: Response) -> None:
        """Answer the arriving request, or the connection itself, and read no more."""
        self._ignores = True
        request = self._arriving or Request(self)
        self._arriving = None
        self._head_open = False
        request.closes = True
        request.finished_at = self.server.monotonic()
        self._queue.append(request)
        request.respond(response)

    def _abandon(self) -> None:
        cast(Request, self._arriving).release()
        self._arriving = None

    def _pause(self) -> None:
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()

    def _consider_resuming(self) -> None:
        if self._is_paused and not self.is_blocked and len(self._queue) < MAX_PIPELINED // 2:
            # not here: the held bytes may be answered at once and call this again
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self.is_closed or not self._is_paused or self.is_blocked:
            return
        self._is_paused = False
        held, self._held = self._held, b""
        self._feed_slices(held)
        if not self._is_paused:
            self._transport.resume_reading()

    # --- writing -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the responses that are due, in order."""
        queue, transport = self._queue, self._transport
        if self.is_closed or self._is_finishing or transport.is_closing():
            return
        while queue and (response := queue[0].response) is not None:
            if queue[0].stream is not None:
                if self._flush_stream(queue[0], response):
                    self._finish()
                return
            request = queue.popleft()
            closes = request.closes or response.close
            if not closes and self.server.is_stopping:
                closes = not queue and self._arriving is None
            if closes or request.version != "1.1" or request.method == "HEAD":
                word = b"close" if closes else b"keep-alive"
                has_body = request.method != "HEAD"
                transport.write(response.encode(self.server.date, word, with_body=has_body))
            else:
                transport.write(response.plain(self.server.date))
            if closes:
                self._finish()
                return
        if not queue:
            if self._ignores:
                self._finish()  # the client has closed its half; that was its last response
                return
            self._settle()
        if self._is_paused:
            self._consider_resuming()

    def _flush_stream(self, request: Request, response: Response) -> bool:
        """Send the parts of a stream; True after the last one."""
        stream = cast(Stream, request.stream)
        has_body = request.method != "HEAD"
        parts, stream.parts = stream.parts, []
        if not stream.has_begun:
            stream.has_begun = True
            parts.insert(0, response.encode(self.server.date, b"close", with_body=has_body))
        if has_body or len(parts) > 0:
            self._transport.write(b"".join(parts if has_body else parts[:1]))
        return stream.has_ended or not has_body

    def _settle(self) -> None:
        """With no request unanswered, send a 100 that is due, or become idle."""
        if self._owes_continue and not self._queue:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._rest()

    def _rest(self) -> None:
        if self._arriving is None and not self._queue and not self.is_blocked and not self._ignores:
            self.deadline = self.server.monotonic() + self.server.settings.idle_timeout_seconds

    # --- ending ------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Close after the last response; a client that is still sending gets time to read it first.

        Closing at once with unread bytes in the socket makes the kernel send a reset, which can overtake the
        response. So our half is closed, and further bytes are read and dropped for a while.
        """
        self._ignores = self._is_finishing = True
        self._queue.clear()
        self._held = b""
        transport, settings = self._transport, self.server.settings
        has_unsent = transport.get_write_buffer_size() > 0
        self.deadline = self.server.monotonic() + (
            settings.request_timeout_seconds if has_unsent else LINGER_SECONDS
        )
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        if transport.can_write_eof() and not self._has_eof:
            transport.write_eof()
        else:
            transport.close()

    def expire(self) -> None:
        """Act on the deadline, which has passed."""
        self.deadline = math.inf
        if self._is_finishing or self.is_blocked:
            self._transport.abort()
        elif self._is_paused:
            self.deadline = self.server.monotonic() + 1.0  # the server has paused, not the client
        elif self._arriving is not None:
            self._refuse(responses.TIMEOUT)
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def stop(self) -> None:
        """Close soon if idle, otherwise after the responses that are due."""
        if self._arriving is None and not self._queue and not self._ignores:
            self.deadline = self.server.monotonic() + STOP_GRACE_SECONDS
