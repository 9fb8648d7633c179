"""The HTTP client of all outlets that speak HTTP, and the one place that maps its errors."""

from __future__ import annotations

import asyncio
import base64
import functools
import gzip
import re
import ssl
import zlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import httptools
import msgspec

from headwater import __version__
from headwater.clock import Clock, SystemClock
from headwater.delivery.outlets.base import Outlet
from headwater.errors import EventRefused, OutletUnavailable, SettingsError
from headwater.formats import zstd
from headwater.settings import PATH, OutletSettings, doc

if TYPE_CHECKING:
    import httpx2

RETRYABLE_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 408, 425, 429})
"""4xx that are not about the event: an operator can correct the key, the address or the pace."""

USER_AGENT = f"headwater/{__version__}"
_EXCERPT_CHARACTERS = 200


def excerpt(answer: HttpAnswer) -> str:
    """The start of the answer's body on one line, for a reason that a person reads."""
    return " ".join(answer.text.split())[:_EXCERPT_CHARACTERS]


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After asks for, as a number or as an HTTP date; None: nothing usable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError):
        return None
    if moment.tzinfo is None:  # "-0000" and the obsolete forms; HTTP dates are always GMT
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


MAX_ANSWER_BYTES = 1024 * 1024  # no answer needs more, and the receiver is not trusted (G12)


class BrokenAnswer(Exception):
    """The connection ended, or its bytes are not an HTTP answer."""

    def __init__(self, text: str, *, is_stale: bool = False) -> None:
        super().__init__(text)
        self.is_stale = is_stale  # not a byte came: the receiver had closed a connection that was idle


class HttpAnswer(msgspec.Struct):
    """The receiver's answer; header names are in lower case."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


class Connection(asyncio.Protocol):
    """Sends one request at a time. Unusable after an error or a cancellation, or when `is_open` is false."""

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
            cause = f": {error}" if error else ""
            self._fail(
                f"the connection was closed before the answer was complete{cause}", not self._has_begun
            )

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # bytes without a request
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


def decoded(answer: HttpAnswer) -> HttpAnswer:
    """The answer with its content decompressed, if it came compressed unasked; raises BrokenAnswer."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", "") or not answer.content:
        return answer
    if encoding not in ("gzip", "deflate"):
        raise BrokenAnswer(f"the answer is compressed as {encoding}, which was not requested")
    try:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        content = unpacker.decompress(answer.content, MAX_ANSWER_BYTES)
    except zlib.error as error:
        raise BrokenAnswer(f"the answer is not valid {encoding}: {error}") from None
    if not unpacker.eof:
        raise BrokenAnswer(f"the answer in {encoding} is cut off, or longer than {MAX_ANSWER_BYTES} bytes")
    return HttpAnswer(answer.status_code, answer.headers, content)


Compression = Literal["none", "gzip", "zstd"]
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\r\n\0\u0100-\U0010ffff]*")  # one line of Latin-1
_THREAD_BYTES = 64 * 1024  # from here on compressing takes long enough to be worth a thread


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the receiver's certificate is checked, and our own certificate."""

    verify: Annotated[bool, doc("Check the receiver's certificate; never switch it off for good.")] = True
    ca: Annotated[str, doc("PEM file of the authorities to trust instead."), PATH] = ""
    certificate: Annotated[str, doc("PEM file with our own certificate."), PATH] = ""
    key: Annotated[str, doc("PEM file with its private key."), PATH] = ""


def bare_url(url: str) -> str:
    """The URL without a password or query that it may hold, for texts that people see (G12)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))


class HttpClient:
    """Posts bytes and returns the receiver's answer; OutletUnavailable if there is none.

    Connections are kept and used again; there are as many as requests at once. Where the environment names a
    proxy for the address (HTTPS_PROXY, NO_PROXY, …), httpx2 is imported and used instead. Raises
    SettingsError at once where a file of `tls` or a header cannot be used.
    """

    def __init__(
        self,
        *,
        url: str,
        headers: dict[str, str],
        tls: TlsOptions,
        compression: Compression = "none",
        max_connections: int = 16,
        source: str = "outlet",
        use_proxy: bool = True,
    ) -> None:
        self._headers = {"user-agent": USER_AGENT, "content-type": "application/json"}
        self._headers |= {name.lower(): value for name, value in headers.items()}
        self._headers |= {"accept-encoding": "identity"}
        self._compression = compression
        if compression != "none":
            self._headers["content-encoding"] = compression
        if "authorization" not in self._headers and (user := _basic(url)):
            self._headers["authorization"] = user
        if bad := [name for name, value in self._headers.items() if not _is_header(name, value)]:
            raise SettingsError(
                [f"`headers.{name}` cannot be sent in a header" for name in bad], source=source
            )
        self._max_connections = max_connections
        self._context = _context(tls, source)
        self._idle: list[Connection] = []
        self._is_open = False
        self._proxied: httpx2.AsyncClient | None = None
        self._needs_proxy = use_proxy and needs_proxy(url)

    def open(self) -> None:
        """Be ready; connections are opened by the first requests."""
        self._is_open = True
        if self._needs_proxy and self._proxied is None:
            import httpx2

            self._proxied = httpx2.AsyncClient(
                headers=self._headers,
                verify=self._context,
                timeout=None,  # the scheduler cancels what takes too long
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=self._max_connections),
            )

    async def close(self) -> None:
        self._is_open = False
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        await asyncio.sleep(0)  # the loop closes a connection in its next round, and this may be the last
        proxied, self._proxied = self._proxied, None
        if proxied is not None:
            await proxied.aclose()

    async def post(self, url: str, body: bytes, *, method: str = "POST") -> HttpAnswer:
        """The receiver's answer; raises OutletUnavailable when there is none or it cannot be read."""
        assert self._is_open, "connect comes before send"
        if self._compression != "none":
            compress = _gzip if self._compression == "gzip" else _zstd
            small = len(body) < _THREAD_BYTES
            body = compress(body) if small else await asyncio.to_thread(compress, body)
        try:
            if self._proxied is not None:
                return decoded(await _request_by_proxy(self._proxied, url, body, method))
            return decoded(await self._request(url, body, method))
        except (OSError, BrokenAnswer, ValueError) as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise OutletUnavailable(f"{bare_url(url)} gave no usable answer ({what}).") from error

    async def _request(self, url: str, body: bytes, method: str) -> HttpAnswer:
        parts = urlsplit(url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if secure else 80)
        name = f"[{host}]" if ":" in host else host
        lines = [
            f"{method} {target} HTTP/1.1",
            f"host: {name}:{parts.port}" if parts.port else f"host: {name}",
        ]
        lines += [f"{field}: {value}" for field, value in self._headers.items()]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1")
        loop = asyncio.get_running_loop()
        while True:
            if fresh := not self._idle:
                context = self._context if secure else None
                _, connection = await loop.create_connection(
                    Connection, host, port, ssl=context, server_hostname=host if secure else None
                )
            else:
                connection = self._idle.pop()
            try:
                answer = await connection.request(head + body)
            except BrokenAnswer as error:
                if error.is_stale and not fresh:
                    continue  # closed while idle: the receiver has not read this request
                raise
            if connection.is_open and self._is_open and len(self._idle) < self._max_connections:
                self._idle.append(connection)
            else:
                connection.close()
            return answer


async def _request_by_proxy(client: httpx2.AsyncClient, url: str, body: bytes, method: str) -> HttpAnswer:
    import httpx2

    while True:
        events: set[str] = set()

        async def record(event: str, info: object, events: set[str] = events) -> None:
            events.add(event)

        content = bytearray()
        try:
            async with client.stream(method, url, content=body, extensions={"trace": record}) as reply:
                async for (
                    part
                ) in reply.aiter_raw():  # not decompressed: a small answer can unpack to any size
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise BrokenAnswer(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            is_fresh = "connection.connect_tcp.started" in events
            has_answer = "http11.receive_response_headers.complete" in events
            if isinstance(error, (httpx2.NetworkError, httpx2.RemoteProtocolError)) and not (
                is_fresh or has_answer
            ):
                continue  # closed while idle, as in `HttpClient._request`
            raise BrokenAnswer(f"{type(error).__name__}: {error}") from error
        return HttpAnswer(reply.status_code, dict(reply.headers), bytes(content))


def _is_header(name: str, value: str) -> bool:
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value))


def _basic(url: str) -> str:
    """The Authorization header for a user and password in the URL."""
    parts = urlsplit(url)
    if not parts.username:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def needs_proxy(url: str) -> bool:
    """Whether the environment names a proxy for this address."""
    parts = urlsplit(url)
    proxies = getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")


def _context(tls: TlsOptions, source: str) -> ssl.SSLContext:
    if tls == TlsOptions():
        return _default_context()
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError([f"`tls` names a file that cannot be used: {error}"], source=source) from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def _default_context() -> ssl.SSLContext:
    """Shared by all outlets without settings of their own: to load the system's certificates takes 15 ms."""
    return ssl.create_default_context()


def _gzip(body: bytes) -> bytes:
    # level 1 takes half of level 6's time, for bodies a tenth larger; the sender's CPU is what runs out first
    return gzip.compress(body, compresslevel=1, mtime=0)


def _zstd(body: bytes) -> bytes:
    return zstd.compress(body, level=1)


def check_url(url: str, source: str) -> str:
    """The URL without a slash at its end; raises SettingsError if it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        shown = bare_url(url)
    except ValueError as error:  # brackets that are not closed, a port above 65535
        raise SettingsError([f"`url` cannot be used: {error}"], source=source) from None
    if not is_usable:
        raise SettingsError(
            [f"`url` must start with http:// or https:// and name a host, not `{shown}`"], source=source
        )
    return url.rstrip("/")


def bearer(api_key: str, headers: dict[str, str]) -> dict[str, str]:
    """The headers for an API key, and the further headers."""
    return ({"authorization": f"Bearer {api_key}"} if api_key else {}) | headers


class HttpReceiverOutlet(Outlet):
    """An outlet whose receiver speaks HTTP; its options have `url`, `tls` and `compression`."""

    shares_loop = True

    def __init__(
        self, options: Any, settings: OutletSettings, *, headers: dict[str, str], clock: Clock | None
    ) -> None:
        super().__init__(options, settings)
        self._clock = clock or SystemClock()
        self._url = check_url(options.url, source=f"outlet {settings.name}")
        self._http = HttpClient(
            url=options.url,
            headers=headers,
            tls=options.tls,
            compression=options.compression,
            max_connections=settings.max_in_flight,
            source=f"outlet {settings.name}",
        )

    def check(
        self,
        answer: HttpAnswer,
        url: str,
        retryable: frozenset[int] = RETRYABLE_STATUSES,
        *,
        pausing_all: frozenset[int] = frozenset(),
    ) -> None:
        """Raise unless the status is 2xx: EventRefused for 4xx, OutletUnavailable for all else.

        A 4xx that is `retryable` is not about the event; a redirect is not followed. The Retry-After of a
        status in `pausing_all` is for all sessions.
        """
        status = answer.status_code
        if 200 <= status < 300:
            return
        text = f"{bare_url(url)} answered {status}"
        if body := excerpt(answer):
            text += f": {body}"
        if 400 <= status < 500 and status not in retryable:
            raise EventRefused(text)
        hint = ""
        if status in (401, 403):
            hint = f"Set `api_key` of outlet {self.settings.name} to a key with access."
        elif status == 407:
            hint = "Set HTTPS_PROXY to https://USER:PASSWORD@HOST:PORT."
        elif status in (404, 405):
            hint = f"Set `url` of outlet {self.settings.name} to the receiver's API."
        elif 300 <= status < 400:
            text += f" and points to {answer.headers.get('location', 'nowhere')}"
            hint = f"Set `url` of outlet {self.settings.name} to that address: redirects are not followed."
        wish = retry_after_seconds(answer.headers.get("retry-after"), self._clock.now())
        raise OutletUnavailable(
            text, hint=hint, retry_after_seconds=wish, pauses_all=bool(wish) and status in pausing_all
        )

    async def connect(self) -> None:
        self._http.open()

    async def close(self) -> None:
        await self._http.close()
