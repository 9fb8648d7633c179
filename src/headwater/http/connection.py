"""The wire: HTTP/1.1 over asyncio, parsed by httptools.

There is no coroutine and no timer per request. Bytes come in, the parser calls back, a whole request is
handed to `Wire.handle` there and then, and whoever answers it calls `Request.respond`. `make bench-sidecar`
compares that with a general server.

Everything that a client can make grow is bounded here (G8, G12): head and body bytes, connections, pipelined
requests, bytes in memory in all, the time that a request takes to arrive and an answer to be read.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import cast

import httptools

from headwater.clock import Clock
from headwater.http import refusals
from headwater.http.request import Request, Stream
from headwater.http.response import Response
from headwater.settings import GatewaySettings

__all__ = ["Connection", "Wire"]


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


MAX_PIPELINED = 64  # requests of one connection that wait for their answers before we stop reading


SLICE_BYTES = 16 * 1024  # the parser cannot be paused, so this much may be parsed beyond MAX_PIPELINED


LINGER_SECONDS = 2.0  # time for a client to read why it was refused before its unread bytes cause a reset


STOP_GRACE_SECONDS = 0.5  # time for a request that was on its way when we began to stop


_NAMES = ("host", "content-type", "content-length", "content-encoding", "user-agent", "authorization")


_USUAL = {spelling.encode(): name for name in _NAMES for spelling in (name, name.title())}


class _Stop(Exception):
    """Leaves the parser in the middle of a request whose answer is decided."""


class Connection(asyncio.Protocol):
    """One client. Answers go out in the order of the requests, whatever the order they are found in."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.deadline = math.inf
        self.is_blocked = False  # the client does not read its answers
        self.is_closed = False
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._queue: deque[Request] = deque()
        self._arriving: Request | None = None
        self._head_open = False
        self._head_bytes = 0
        self._held = b""
        self._is_paused = False
        self._ignores = False  # nothing more is read: the last answer is decided
        self._is_finishing = False
        self._has_eof = False
        self._upgrades = False
        self._owes_continue = False

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wire = self.wire
        wire.connections.add(self)
        if len(wire.connections) > wire.settings.max_connections:
            if len(wire.connections) > 2 * wire.settings.max_connections:
                self._transport.abort()  # too many even to be told so
                return
            self._refuse(refusals.FULL)
            return
        self.deadline = wire.monotonic() + wire.settings.idle_timeout_seconds

    @property
    def peer(self) -> str:
        """The address at the other end; nothing where there is none."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

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
            return False  # TLS cannot be closed by halves
        return bool(self._queue)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._ignores = True
        self.wire.left(self)
        if self._arriving is not None:
            self._abandon()
        self._queue.clear()  # whoever answers them later finds nobody; what was appended stays appended

    def pause_writing(self) -> None:
        self.is_blocked = True
        self._pause()
        self.deadline = self.wire.monotonic() + self.wire.settings.request_timeout_seconds

    def resume_writing(self) -> None:
        self.is_blocked = False
        self._rest()
        self._consider_resuming()

    # -- what the parser calls

    def on_message_begin(self) -> None:
        self._arriving = Request(self)
        self._head_open = True
        self._head_bytes = 0
        self.deadline = self.wire.monotonic() + self.wire.settings.request_timeout_seconds

    def on_url(self, url: bytes) -> None:
        assert self._arriving is not None
        self._arriving.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_open:
            return  # a trailer; nothing of ours is in one
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
                self._give_up(refusals.NO_HOST)
        elif request.version != "1.0":
            self._give_up(refusals.UNKNOWN_VERSION)
        if "transfer-encoding" in headers and headers["transfer-encoding"].lower() != "chunked":
            self._give_up(refusals.ODD_TRANSFER)
        wire = self.wire
        declared = int(headers.get("content-length", 0))
        request.refusal = wire.admit(request)
        if declared > wire.settings.max_body_bytes:
            self._give_up(request.refusal or wire.too_large)
        if wire.stopping:
            request.refusal = refusals.STOPPING
        elif request.refusal is None and declared > max(0, wire.room):
            request.refusal = refusals.BUSY  # a probe without a body is served however busy we are
        if "expect" in headers:
            self._expected(request)

    def on_body(self, chunk: bytes) -> None:
        request, wire = self._arriving, self.wire
        assert request is not None
        request.arrived += len(chunk)
        if request.arrived > wire.settings.max_body_bytes:
            self._give_up(request.refusal or wire.too_large)
        if request.refusal is not None:
            return  # read and thrown away, so that the client can keep its connection
        request.chunks.append(chunk)
        request.hold(len(chunk))
        if wire.pending_bytes > wire.settings.max_pending_bytes:
            request.refusal = refusals.BUSY
            request.release()

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        request = self._arriving
        assert request is not None
        self._arriving = None
        self.deadline = math.inf
        request.finished_at = self.wire.monotonic()
        self._queue.append(request)
        if request.closes:
            self._ignores = True
        if request.refusal is not None:
            request.respond(request.refusal)
            return
        chunks = request.chunks
        request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        request.chunks = []
        self.wire.handle(request)
        if len(self._queue) >= MAX_PIPELINED:
            self._pause()

    # -- reading

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._ignores:
                self._refuse(refusals.MALFORMED)
        if self._head_open and not self._ignores:
            self._head_bytes += len(data)
            if self._head_bytes > refusals.MAX_HEAD_BYTES:
                self._refuse(refusals.HEAD_TOO_LARGE)

    def _feed_slices(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if self._ignores:
                return
            if self._is_paused:
                self._held += view[start:]
                return
            self._feed(view[start : start + SLICE_BYTES])

    def _decline_upgrade(self, rest: bytes | memoryview) -> None:
        """Serve the request as if it had not offered another protocol, as RFC 9110 allows.

        Java's HTTP clients offer h2c or TLS with ordinary POSTs, and the parser then stops before the body.
        So a fresh parser gets the same head without the offer.
        """
        self._upgrades = False
        request = cast(Request, self._arriving)
        if request.method == "CONNECT":
            self._refuse(refusals.CONNECT)
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
            self._give_up(refusals.UNKNOWN_EXPECTATION)
        if request.refusal is not None:
            request.closes = True  # it is not known whether the body will follow
            self._give_up(request.refusal)
        self._owes_continue = True
        self._settle()

    def _give_up(self, response: Response) -> None:
        self._refuse(response)
        raise _Stop

    def _refuse(self, response: Response) -> None:
        """Answer what is arriving, or the connection as such, and read no more."""
        self._ignores = True
        request = self._arriving or Request(self)
        self._arriving = None
        self._head_open = False
        request.closes = True
        request.finished_at = self.wire.monotonic()
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
            # later, not here: what is held may be answered at once and lead here again
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self.is_closed or not self._is_paused or self.is_blocked:
            return
        self._is_paused = False
        held, self._held = self._held, b""
        self._feed_slices(held)
        if not self._is_paused:
            self._transport.resume_reading()

    # -- writing

    def flush(self) -> None:
        """Send the answers that are due, in order."""
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
            if not closes and self.wire.stopping:
                closes = not queue and self._arriving is None
            if closes or request.version != "1.1" or request.method == "HEAD":
                word = b"close" if closes else b"keep-alive"
                has_body = request.method != "HEAD"
                transport.write(response.encode(self.wire.date, word, with_body=has_body))
            else:
                transport.write(response.plain(self.wire.date))
            if closes:
                self._finish()
                return
        if not queue:
            if self._ignores:
                self._finish()  # the client has closed its half; that was its last answer
                return
            self._settle()
        if self._is_paused:
            self._consider_resuming()

    def _flush_stream(self, request: Request, response: Response) -> bool:
        """Send what a stream has; True when that was all of it."""
        stream = cast(Stream, request.stream)
        has_body = request.method != "HEAD"
        parts, stream.parts = stream.parts, []
        if not stream.has_begun:
            stream.has_begun = True
            parts.insert(0, response.encode(self.wire.date, b"close", with_body=has_body))
        if has_body or len(parts) > 0:
            self._transport.write(b"".join(parts if has_body else parts[:1]))
        return stream.has_ended or not has_body

    def _settle(self) -> None:
        """Nothing is waiting for an answer: keep the promise of a 100, else begin to be idle."""
        if self._owes_continue and not self._queue:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._rest()

    def _rest(self) -> None:
        if self._arriving is None and not self._queue and not self.is_blocked and not self._ignores:
            self.deadline = self.wire.monotonic() + self.wire.settings.idle_timeout_seconds

    # -- ending

    def _finish(self) -> None:
        """Close after the last answer; a client that is still sending gets time to read it first.

        Closing at once with unread bytes in the socket makes the kernel send a reset, which can overtake the
        answer. So our half is closed, and what still comes is thrown away for a moment.
        """
        self._ignores = self._is_finishing = True
        self._queue.clear()
        self._held = b""
        transport, settings = self._transport, self.wire.settings
        has_unsent = transport.get_write_buffer_size() > 0
        self.deadline = self.wire.monotonic() + (
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
        """The deadline has passed."""
        self.deadline = math.inf
        if self._is_finishing or self.is_blocked:
            self._transport.abort()
        elif self._is_paused:
            self.deadline = (
                self.wire.monotonic() + 1.0
            )  # it is we who do not read: the client is not to blame
        elif self._arriving is not None:
            self._refuse(refusals.TIMEOUT)
        else:
            self._transport.close()

    def cut(self) -> None:
        """Close without further ado."""
        self._transport.abort()

    def stop(self) -> None:
        """Close soon when idle; otherwise after the answers that are under way."""
        if self._arriving is None and not self._queue and not self._ignores:
            self.deadline = self.wire.monotonic() + STOP_GRACE_SECONDS
