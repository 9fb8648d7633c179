"""A small HTTP server for tests, in its own thread, that can be made to fail."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import httptools
import msgspec

from headwater.formats import zstd

_PHRASES = {200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 404: "Not Found"}


class Request(msgspec.Struct):
    """A request with its body decompressed; `number` counts all requests from 1."""

    number: int
    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct, kw_only=True):
    """An answer.

    `cut` closes the connection `before` the first byte of the answer, or in its `middle`; `reset_after`
    resets it after so many bytes. `raw` replaces the HTTP answer. `keep` states whether the server keeps the
    events; None: if the status is a success.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    delay_seconds: float = 0.0
    cut: str = ""
    reset_after: int | None = None
    raw: bytes | None = None
    keep: bool | None = None

    @property
    def keeps(self) -> bool:
        return self.keep if self.keep is not None else 200 <= self.status < 300 and self.raw is None

    def encode(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [f"HTTP/1.1 {self.status} {_PHRASES.get(self.status, 'Status')}"]
        if self.status != 204:
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class ScriptedServer:
    """Listens on `port` (0: a free one) between `start` and `stop`; may be started again on the same port.

    The answer is, in this order: the next of `answer_next`, that of `answer_always`, that of `handle`.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self.requests = 0
        self.connections = 0
        self._queued: deque[Answer] = deque()
        self._resets: deque[int] = deque()
        self._always: Answer | Callable[[Request], Answer | None] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[_Connection] = set()

    async def handle(self, request: Request, answer: Answer | None) -> Answer:
        """Answer a request; `answer` is the scripted one, if any, whose delay this method waits for."""
        if answer is not None:
            await asyncio.sleep(answer.delay_seconds)
        return answer or Answer()

    def answer_next(self, *answers: Answer) -> None:
        """Use these answers for the next requests, one each."""
        self._queued.extend(answers)

    def reset_next(self, *sizes: int) -> None:
        """Reset the connection after so many bytes of each of the next requests, which are not counted."""
        self._resets.extend(sizes)

    def answer_always(self, answer: Answer | Callable[[Request], Answer | None] | None) -> None:
        """Use this answer, or that of the function, for all further requests; None ends it."""
        self._always = answer

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    def start(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def stop(self) -> None:
        """Close the port and cut all connections, as a crash would."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until(self, condition: Callable[[], bool], timeout_seconds: float = 30.0) -> bool:
        """Wait for a condition; False after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        server = await self._loop.create_server(
            lambda: _Connection(self), self.host, self.port, backlog=1024, ssl=self._tls
        )
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        server.close()
        for connection in list(self._open):
            connection.abort()
        await server.wait_closed()

    async def _answer(self, request: Request) -> Answer:
        answer: Answer | None
        if self._queued:
            answer = self._queued.popleft()
        else:
            answer = self._always(request) if callable(self._always) else self._always
        return await self.handle(request, answer)


class _Connection(asyncio.Protocol):
    """One client, one request at a time, kept alive."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._reset_at: int | None = None
        self._read = 0  # bytes of the request that is arriving
        self._task: asyncio.Task[None] | None = None
        self._path = ""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._server.connections += 1
        self._number = self._server.connections
        self._server._open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server._open.discard(self)
        if self._task is not None:
            self._task.cancel()  # the client is gone

    def abort(self) -> None:
        self._transport.abort()

    def reset(self) -> None:
        """Close the connection by a reset, which also drops what the client has not read yet."""
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._read and self._server._resets:
            self._reset_at = self._server._resets.popleft()
        self._read += len(data)
        if self._reset_at is not None and self._read > self._reset_at:
            self.reset()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._path, self._headers, self._body = url.decode(), {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._read, self._reset_at = 0, None
        self._server.requests += 1
        body = b"".join(self._body)
        encoding = self._headers.get("content-encoding", "")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding == "zstd":
            body = zstd.decompress(body)
        method = self._parser.get_method().decode()
        request = Request(self._server.requests, self._number, method, self._path, self._headers, body)
        self._waiting.append(request)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            answer = await self._server._answer(self._waiting.popleft())
            data = answer.encode()
            if answer.cut == "before":
                self._transport.abort()
            elif answer.cut == "middle":
                self._transport.write(data[: max(1, len(data) // 2)])
                self._transport.close()
            elif answer.reset_after is not None:
                self._transport.write(data[: answer.reset_after])
                self.reset()
            else:
                self._transport.write(data)
                if answer.raw is not None:
                    self._transport.close()
        self._task = None
