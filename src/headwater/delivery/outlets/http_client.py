"""The HTTP client behind all outlets that speak HTTP: one place to replace it, and to map its errors."""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
import ssl
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec
import zstandard

from headwater import __version__
from headwater.delivery.outlets.http_connection import (
    BrokenAnswer,
    Connection,
    HttpAnswer,
    decoded,
    open_connection,
)
from headwater.errors import OutletUnavailable, SettingsError

__all__ = ["Compression", "HttpAnswer", "HttpClient", "TlsOptions", "bare_url", "bearer", "check_url"]

Compression = Literal["none", "gzip", "zstd"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_THREAD_BYTES = 64 * 1024  # from here on compressing takes long enough to be worth a thread


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the receiver's certificate is checked, and which one we show."""

    verify: Annotated[
        bool, msgspec.Meta(description="Check the receiver's certificate; never switch it off for good.")
    ] = True
    ca: Annotated[str, msgspec.Meta(description="PEM file of the authorities to trust instead.")] = ""
    certificate: Annotated[str, msgspec.Meta(description="PEM file with our own certificate.")] = ""
    key: Annotated[str, msgspec.Meta(description="PEM file with its private key.")] = ""


def bare_url(url: str) -> str:
    """The URL without a password or query that it may hold, for texts that people see (G12)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))


class HttpClient:
    """Posts bytes; what goes wrong on the way is OutletUnavailable, what the receiver says is returned.

    Connections are kept and used again; there are as many as requests at once. Where the environment names a
    proxy for the address (HTTPS_PROXY, NO_PROXY, …), httpx2 is used instead. Raises SettingsError at once
    where a file of `tls` or a header cannot be used.
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
    ) -> None:
        self._headers = {"user-agent": f"headwater/{__version__}", "content-type": "application/json"}
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
        self._needs_proxy = _needs_proxy(url)

    def open(self) -> None:
        """Be ready; connections are opened by the first requests."""
        self._is_open = True
        if self._needs_proxy and self._proxied is None:
            self._proxied = httpx2.AsyncClient(
                headers=self._headers,
                verify=self._context,
                timeout=None,  # the engine cancels what takes too long
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
                said = await self._proxied.request(method, url, content=body)
                return HttpAnswer(said.status_code, dict(said.headers), said.content)
            return decoded(await self._request(url, body, method))
        except (OSError, BrokenAnswer, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
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
        while True:
            fresh = not self._idle
            connection = (
                await open_connection(host, port, self._context if secure else None)
                if fresh
                else self._idle.pop()
            )
            try:
                answer = await connection.request(head + body)
            except BrokenAnswer as error:
                if error.is_stale and not fresh:
                    continue  # it was closed while it was idle, so nobody has read this request: another one
                raise
            if connection.is_open and self._is_open and len(self._idle) < self._max_connections:
                self._idle.append(connection)
            else:
                connection.close()
            return answer


def _is_header(name: str, value: str) -> bool:
    return bool(_HEADER_NAME.fullmatch(name)) and not set(value) & set("\r\n\0") and _is_latin(value)


def _is_latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


def _basic(url: str) -> str:
    """The Authorization that a user and password in the URL stand for."""
    parts = urlsplit(url)
    if not parts.username:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _needs_proxy(url: str) -> bool:
    parts = urlsplit(url)
    proxies = getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")


def _context(tls: TlsOptions, source: str) -> ssl.SSLContext:
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


def _gzip(body: bytes) -> bytes:
    # level 1 takes half of level 6's time, for bodies a tenth larger; the sender's CPU is what runs out first
    return gzip.compress(body, compresslevel=1, mtime=0)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


def check_url(url: str, source: str) -> str:
    """The URL without a slash at its end; raises SettingsError where it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            [f"`url` must start with http:// or https:// and name a host, not `{bare_url(url)}`"],
            source=source,
        )
    return url.rstrip("/")


def bearer(api_key: str, headers: dict[str, str]) -> dict[str, str]:
    """The headers that an API key and further headers amount to."""
    return ({"authorization": f"Bearer {api_key}"} if api_key else {}) | headers
