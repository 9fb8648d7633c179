"""The HTTP client behind all outlets that speak HTTP: one place to replace it, and to map its errors."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec
import zstandard

from headwater import __version__
from headwater.errors import OutletUnavailable, SettingsError

__all__ = ["Compression", "HttpClient", "TlsOptions", "bare_url", "bearer", "check_url"]

Compression = Literal["none", "gzip", "zstd"]

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

    Raises SettingsError at once where a file of `tls` cannot be used.
    """

    def __init__(
        self,
        *,
        headers: dict[str, str],
        tls: TlsOptions,
        compression: Compression = "none",
        max_connections: int = 16,
        source: str = "outlet",
    ) -> None:
        self._headers = {"user-agent": f"headwater/{__version__}", "content-type": "application/json"}
        self._headers |= {name.lower(): value for name, value in headers.items()}
        self._compression = compression
        if compression != "none":
            self._headers["content-encoding"] = compression
        self._max_connections = max_connections
        self._context = _context(tls, source)
        self._client: httpx2.AsyncClient | None = None

    def open(self) -> None:
        """Make the client; connections are opened by the first request and kept."""
        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers=self._headers,
                verify=self._context,
                timeout=None,  # the engine cancels what takes too long
                follow_redirects=False,
                trust_env=True,
                limits=httpx2.Limits(
                    max_connections=self._max_connections, max_keepalive_connections=self._max_connections
                ),
            )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, url: str, body: bytes, *, method: str = "POST") -> httpx2.Response:
        """The receiver's answer; raises OutletUnavailable when there is none or it cannot be read."""
        assert self._client is not None, "connect comes before send"
        if self._compression != "none":
            compress = _gzip if self._compression == "gzip" else _zstd
            small = len(body) < _THREAD_BYTES
            body = compress(body) if small else await asyncio.to_thread(compress, body)
        try:
            return await self._client.request(method, url, content=body)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise OutletUnavailable(f"{bare_url(url)} gave no usable answer ({what}).") from error


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
    return gzip.compress(body, compresslevel=3, mtime=0)


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
