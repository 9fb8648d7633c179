"""One HTTP/1.1 connection to a receiver, kept open between requests.

A sidecar sends many small requests to one address. This does no more than that needs, and costs a tenth of a
general client's time; what needs more, such as a proxy, goes through httpx2 (see `http_client`).
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from typing import Any, cast

import httptools
import msgspec

__all__ = ["MAX_ANSWER_BYTES", "BrokenAnswer", "Connection", "HttpAnswer", "decoded", "open_connection"]

MAX_ANSWER_BYTES = 1024 * 1024  # a receiver has no more to say than this; it is not trusted (G12)


class BrokenAnswer(Exception):
    """The connection ended, or what came over it is no HTTP answer."""

    def __init__(self, text: str, *, is_stale: bool = False) -> None:
        super().__init__(text)
        self.is_stale = is_stale  # not a byte came: the receiver had closed a connection that was idle


class HttpAnswer(msgspec.Struct):
    """What the receiver said; header names are in lower case."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


class Connection(asyncio.Protocol):
    """Sends one request at a time. Not usable any more after an error, a cancellation or `is_open` is off."""

    def __init__(self) -> None:
        self.is_open = False
        self.has_been_used = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._has_begun = False  # a byte of the answer is here
        self._ends_with_connection = False

    async def request(self, data: bytes) -> HttpAnswer:
        """Send these bytes and wait for the answer; raises BrokenAnswer."""
        assert self._transport is not None
        if not self.is_open:
            raise BrokenAnswer("the connection was closed", is_stale=True)
        self._begin()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
            self.has_been_used = True

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._ends_with_connection and error is None:
            self._finish()
        else:
            said = f": {error}" if error else ""
            self._fail(f"the connection was closed before the answer was complete{said}", not self._has_begun)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked
            return
        self._has_begun = True
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            self._fail(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")

    # --- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._ends_with_connection = not has_length and status >= 200 and status not in (204, 304)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._headers = {}  # "100 Continue" and its like come before the answer
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
        self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(HttpAnswer(status, self._headers, b"".join(self._body)))

    def _fail(self, text: str, is_stale: bool = False) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokenAnswer(text, is_stale=is_stale and self.has_been_used))
        self.close()


async def open_connection(host: str, port: int, context: ssl.SSLContext | None) -> Connection:
    """A new connection; raises OSError."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        Connection, host, port, ssl=context, server_hostname=host if context else None
    )
    return connection


def decoded(answer: HttpAnswer) -> HttpAnswer:
    """The answer with its content unpacked, though we did not ask for packing; raises BrokenAnswer."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", "") or not answer.content:
        return answer
    if encoding not in ("gzip", "deflate"):
        raise BrokenAnswer(f"the answer is packed as {encoding}, which was not asked for")
    try:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        content = unpacker.decompress(answer.content, MAX_ANSWER_BYTES)
    except zlib.error as error:
        raise BrokenAnswer(f"the answer is not the {encoding} that it says: {error}") from None
    if not unpacker.eof:
        raise BrokenAnswer(f"the answer in {encoding} is cut off, or longer than {MAX_ANSWER_BYTES} bytes")
    return HttpAnswer(answer.status_code, answer.headers, content)
