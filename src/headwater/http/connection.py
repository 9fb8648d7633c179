"""One client connection: HTTP/1.1 over asyncio, parsed by httptools.

There is no task and no timer per request: the parser calls back, a complete request goes to
`HttpServer.handle` in the same call, and its handler calls `Request.respond` now or later.

Everything that a client can make grow is bounded here (G8, G12): head, body and framing bytes, pipelined
requests, bytes in memory, the time that a request takes to arrive and a response to be read.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from headwater.http import response as responses
from headwater.http.admission import peer_address
from headwater.http.decompress import decoder_of
from headwater.http.request import Request, Stream
from headwater.http.request_head import head_bytes, head_refusal, head_without_upgrade, repetition_refusal
from headwater.http.response import Problem, Response

if TYPE_CHECKING:
    from headwater.http.handshake import Handshake
    from headwater.http.server import HttpServer

MAX_PIPELINED = 64  # unanswered requests of one connection at which reading pauses
SLICE_BYTES = 16 * 1024  # the parser cannot be paused, so this much may be parsed beyond MAX_PIPELINED
UNSENT_BYTES = 64 * 1024  # of responses, at which reading pauses
REQUEST_BYTES = 1024  # memory of a request without its head and body
SMALL_BYTES = 4 * 1024  # a head or framing up to this size is read however busy the server is
SURPLUS_SECONDS = 2.0  # for the request of a connection beyond the limits, which may be a probe
HURRY_SECONDS = 5.0  # for a request or the next one, while places or memory are scarce
LINGER_SECONDS = 2.0  # time for a client to read a refusal before its unread bytes cause a reset
STOP_GRACE_SECONDS = 0.5  # time for a request that was in transit when the server began to stop
_NAMES = ("host", "content-type", "content-length", "content-encoding", "user-agent", "authorization")
_USUAL = {spelling.encode(): name for name in _NAMES for spelling in (name, name.title())}


class _Stop(Exception):
    """Leaves the parser in the middle of a request whose response is decided."""


class Connection(asyncio.Protocol):
    """One client. Responses are sent in the order of the requests, in whichever order handlers give them."""

    def __init__(self, server: HttpServer, handshake: Handshake | None = None) -> None:
        self.server = server
        self.deadline = math.inf
        self.is_blocked = False  # the client does not read its responses
        self.is_closed = False
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._handshake = handshake
        self._surplus: Response | None = None  # the answer to all but probes, beyond a limit of connections
        self._queue: deque[Request] = deque()
        self._waiting: deque[Request] = deque()  # the end of the queue: not handled while reading is paused
        self._arriving: Request | None = None
        self._head_open = False
        self._repeated = 0
        self._host: str | None = None  # of the last request, which was checked
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
        self._transport.set_write_buffer_limits(UNSENT_BYTES)
        server = self.server
        if self._handshake is not None:
            self._surplus = server.admission.replace(self._handshake, self)
            self._handshake = None
        else:
            self._surplus = server.admission.add(self, self.peer)
        seconds = SURPLUS_SECONDS if self._surplus else server.settings.idle_timeout_seconds
        self.deadline = server.monotonic() + seconds

    @property
    def peer(self) -> str:
        """The address at the other end; empty if there is none."""
        return peer_address(self._transport)

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has closed the connection, or its half of it: a closed socket first shows so."""
        return self.is_closed or self._has_eof

    def data_received(self, data: bytes) -> None:
        if self._ignores:
            return
        if self._is_paused:
            self._hold(data)
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
        self.server.remove(self)
        self.read_no_more()
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
        self._repeated = 0
        if self._surplus is None:
            self.deadline = self.server.monotonic() + self.server.settings.request_timeout_seconds

    def on_url(self, url: bytes) -> None:
        assert self._arriving is not None
        self._arriving.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_open:
            return  # a trailer: ignored, but `_limit_framing` counts it
        assert self._arriving is not None
        headers = self._arriving.headers
        key, text = _USUAL.get(name) or name.decode("latin-1").lower(), value.decode("latin-1")
        if key in headers:
            self._repeated += 1
            if (refusal := repetition_refusal(key, self._repeated)) is not None:
                self._give_up(refusal)
            text = f"{headers[key]}, {text}"
        headers[key] = text

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
        if (refusal := head_refusal(request, self._host)) is not None:
            self._give_up(refusal)
        self._host = headers.get("host")
        size = head_bytes(request)
        if size > responses.MAX_HEAD_BYTES:
            self._give_up(responses.HEAD_TOO_LARGE)
        request.reserve(REQUEST_BYTES + size - request.size)
        request.framing = request.unproductive = 0
        server = self.server
        declared = int(headers.get("content-length", 0))
        request.refusal = server.before_body(request)
        if self._surplus is not None:
            request.closes = True
            if declared or "transfer-encoding" in headers or not (request.route and request.route.is_probe):
                self._give_up(self._surplus)
        if declared > server.settings.max_body_bytes:
            self._give_up(request.refusal or server.body_too_large)
        if server.is_stopping:
            request.refusal = responses.STOPPING
        elif request.refusal is None and declared and not server.has_room(request, declared):
            request.refusal = responses.BUSY  # a probe without a body is served however busy the server is
        if request.refusal is None and "content-encoding" in headers:
            try:
                request.decoder = decoder_of(headers["content-encoding"], server.settings.max_body_bytes)
            except Problem as problem:
                request.problem = problem
            else:
                request.reserve(request.decoder.memory if request.decoder is not None else 0)
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
            request.packed += chunk
            return
        request.append(chunk)
        if server.pending_bytes > server.settings.max_pending_bytes:
            self._consider_room(request)

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        request = self._arriving
        assert request is not None
        if request.decoder is not None:
            request.decode()
            self._consider_room(request)
        self._arriving = None
        self.deadline = math.inf
        request.finished_at = self.server.monotonic()
        self._queue.append(request)
        if request.closes:
            self._ignores = True
        request.complete()
        if self._is_paused:
            self._waiting.append(request)  # its response would only add to those that wait
        else:
            self._handle(request)
        if self._ignores:
            raise _Stop

    # --- reading -----------------------------------------------------------------------------------------

    def _handle(self, request: Request) -> None:
        if request.refusal is not None:
            request.respond(request.refusal)
        else:
            self.server.handle(request)
        if len(self._queue) - len(self._waiting) >= MAX_PIPELINED:
            self._pause()

    def _feed(self, data: bytes | memoryview) -> None:
        earlier = self._arriving
        arrived = 0 if earlier is None else earlier.arrived
        rest = data
        while True:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                if rest := self._without_upgrade(rest[upgrade.args[0] :]):
                    continue
            except httptools.HttpParserError:
                if not self._ignores:
                    self._refuse(responses.MALFORMED)
            break
        request = self._arriving
        if request is not None and not self._ignores:
            before = arrived if request is earlier else 0
            self._limit_framing(request, len(data), request.arrived - before)

    def _feed_slices(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            if self._ignores:
                return
            if self._is_paused:
                self._hold(view[start:])
                return
            self._feed(view[start : start + SLICE_BYTES])
            if self._arriving is not None and self._arriving.decoder is not None and not self._ignores:
                # Decoding is the costliest work for the fewest bytes: other connections come in between.
                self._hold(view[start + SLICE_BYTES :])
                self._pause()
                self._consider_resuming()
                return

    def _limit_framing(self, request: Request, size: int, body_size: int) -> None:
        """Count what has arrived of an incomplete request; refuse it if too much of that is not its body.

        The first slice may also hold earlier requests, so a limit is exceeded for certain one slice later.
        """
        request.decode()
        most = responses.MAX_HEAD_BYTES + SLICE_BYTES
        has_many = self._head_open and len(request.headers) > responses.MAX_HEADERS
        if request.count_framing(size - body_size, most, not body_size) or has_many:
            self._refuse(responses.HEAD_TOO_LARGE if self._head_open else responses.TOO_MUCH_FRAMING)
        elif self._surplus is not None and request.framing > SMALL_BYTES:
            self._refuse(self._surplus)
        elif request.unproductive > SMALL_BYTES and not self.server.has_room(request):
            self._refuse(responses.BUSY)
        elif not self._head_open:
            self._consider_room(request)

    def _consider_room(self, request: Request) -> None:
        """Drop the body of a request that does not fit into memory beside the others."""
        if request.refusal is None and not self.server.has_room(request):
            request.refusal = responses.BUSY
            request.release()

    def _without_upgrade(self, rest: bytes | memoryview) -> bytes:
        """Return the request, and what follows it, as if it had not offered another protocol.

        The parser stops before the body of such a request, so a fresh one gets the head without the offer.
        """
        self._upgrades = False
        request = cast(Request, self._arriving)
        if request.method == "CONNECT":
            self._refuse(responses.CONNECT)
            return b""
        self._abandon()
        self._parser = httptools.HttpRequestParser(self)
        return head_without_upgrade(request) + bytes(rest)

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
        self._take_held()
        request.closes = True
        request.finished_at = self.server.monotonic()
        self._queue.append(request)
        request.respond(response)

    def _abandon(self) -> None:
        cast(Request, self._arriving).release()
        self._arriving = None

    def _hold(self, data: bytes | memoryview) -> None:
        """Keep bytes until reading is resumed."""
        self._held += data
        self.server.pending_bytes += len(data)

    def _take_held(self) -> bytes:
        held, self._held = self._held, b""
        self.server.pending_bytes -= len(held)
        return held

    def read_no_more(self) -> None:
        """Handle no further request; those under way are answered."""
        self._ignores = True
        if self._arriving is not None:
            self._abandon()
        self._take_held()
        while self._waiting:
            self._waiting.pop().release()

    def _pause(self) -> None:
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()

    def _consider_resuming(self) -> None:
        unanswered = len(self._queue) - len(self._waiting)
        if self._is_paused and not self.is_blocked and unanswered < MAX_PIPELINED // 2:
            # not here: the held bytes may be answered at once and call this again
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self.is_closed or not self._is_paused or self.is_blocked:
            return
        self._is_paused = False
        while self._waiting and not self._is_paused:
            self._handle(self._waiting.popleft())
        self._feed_slices(self._take_held())
        if not self._is_paused and not self._transport.is_closing():
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
        self._is_finishing = True
        self.read_no_more()
        self._queue.clear()
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
        elif self._surplus is not None:
            self._refuse(self._surplus)
        elif self._arriving is not None:
            self._refuse(responses.TIMEOUT)
        else:
            self._transport.close()

    def is_slow(self, now: float, *, arriving_only: bool) -> bool:
        """Whether the client has had its time while places or memory are scarce."""
        settings, is_arriving = self.server.settings, self._arriving is not None
        if self.is_blocked or self._is_finishing or (arriving_only and not is_arriving):
            return False
        seconds = settings.request_timeout_seconds if is_arriving else settings.idle_timeout_seconds
        return self.deadline - seconds + HURRY_SECONDS <= now

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def stop(self) -> None:
        """Close soon if idle, otherwise after the responses that are due."""
        if self._arriving is None and not self._queue and not self._ignores:
            self.deadline = self.server.monotonic() + STOP_GRACE_SECONDS
