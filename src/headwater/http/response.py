"""Responses, and the one JSON form of every error.

An error body says what failed, whether a retry can succeed, and what to do:
`{"error": code, "message": …, "hint": …, "retryable": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

import msgspec
import orjson

from headwater.errors import HeadwaterError

JSON = "application/json"
MAX_HEAD_BYTES = 64 * 1024  # request line and headers; common servers allow 8 to 64 KiB
MAX_HEADERS = 256  # each takes far more memory than its bytes; common servers allow 100 or more
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_NO_DETAILS: Mapping[str, object] = MappingProxyType({})
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Response:
    """A response that any number of requests may share: its bytes are built once.

    Only the date, HEAD and the `Connection` header differ between requests.
    """

    __slots__ = ("_after_date", "_before_date", "_plain", "body", "close", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        headers: Mapping[str, str] = _NO_HEADERS,
        close: bool = False,
        streamed: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.close = close
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if body or streamed:
            lines.append(f"Content-Type: {content_type}")
        if streamed:
            lines.append("Transfer-Encoding: chunked")
        elif status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(body)}")
        self._before_date = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\nDate: ".encode("latin-1")
        self._after_date = "".join(f"\r\n{line}" for line in lines).encode("latin-1")
        self._plain = (b"", b"")  # a date, and the bytes with it

    def plain(self, date: bytes) -> bytes:
        """Return the bytes for the common case: HTTP/1.1, not HEAD, the connection stays open."""
        if self._plain[0] is not date:
            self._plain = (
                date,
                b"%b%b%b\r\n\r\n%b" % (self._before_date, date, self._after_date, self.body),
            )
        return self._plain[1]

    def encode(self, date: bytes, connection: bytes, *, with_body: bool) -> bytes:
        """Return the bytes with a `Connection` header, `close` or `keep-alive`; without the body for HEAD."""
        head = b"%b%b%b\r\nConnection: %b\r\n\r\n" % (self._before_date, date, self._after_date, connection)
        return head + self.body if with_body else head


class ProblemBody(msgspec.Struct):
    """The JSON body of every error."""

    error: str
    message: str
    hint: str
    retryable: bool


class Problem(HeadwaterError):
    """A request that is not served. A handler raises it; the server answers it.

    `details` are further fields of the JSON body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        *,
        hint: str,
        retryable: bool = False,
        details: Mapping[str, object] = _NO_DETAILS,
        headers: Mapping[str, str] = _NO_HEADERS,
        close: bool = False,
    ) -> None:
        super().__init__(text, hint=hint)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.details = details
        self.headers = headers
        self.close = close

    def response(self, extra_headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        """Return the response that states the problem."""
        content = {
            "error": self.code,
            "message": self.text,
            "hint": self.hint,
            "retryable": self.retryable,
            **self.details,
        }
        headers = {**self.headers, **extra_headers}
        return Response(self.status, orjson.dumps(content), headers=headers, close=self.close)


# --- responses that a connection gives itself, without a handler ----------------------------------------


def _refusal(status: int, code: str, text: str, hint: str, *, retry: bool = False) -> Response:
    headers = {"Retry-After": "1"} if retry else {}
    problem = Problem(status, code, text, hint=hint, retryable=retry, headers=headers, close=True)
    return problem.response()


MALFORMED = _refusal(
    400,
    "bad_http",
    "The request is not valid HTTP/1.1.",
    "Check the client, and proxies between the client and this server.",
)
NO_HOST = _refusal(
    400, "bad_http", "The `Host` header is missing.", "Send a `Host` header, as HTTP/1.1 requires."
)
BAD_HOST = _refusal(
    400,
    "bad_http",
    "There is more than one `Host` header, or its value is not a host.",
    "Send one `Host` header with a name or address, and a port if it is not the usual one.",
)
REPEATED_HEADER = _refusal(
    400,
    "bad_http",
    "A header that may have one value only was sent twice.",
    "Send `Authorization`, `Content-Length`, `Content-Type`, `Expect` and `Transfer-Encoding` once.",
)
UNKNOWN_TRANSFER_ENCODING = _refusal(
    400,
    "bad_http",
    "The Transfer-Encoding is unknown, or the HTTP version has none.",
    "Send `Transfer-Encoding: chunked` with HTTP/1.1, or `Content-Length`.",
)
CONNECT = _refusal(405, "method_not_allowed", "This server is not a proxy.", "Use GET or POST.")
TIMEOUT = _refusal(
    408, "request_timeout", "The request did not arrive in time.", "Send it again.", retry=True
)
UNKNOWN_EXPECTATION = _refusal(
    417,
    "unknown_expectation",
    "The `Expect` header is unknown.",
    "Send `Expect: 100-continue`, or no `Expect` header.",
)
HEAD_TOO_LARGE = _refusal(
    431,
    "headers_too_large",
    f"The request line and headers exceed {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.",
    "Send fewer or shorter headers, or a shorter query.",
)
TOO_MUCH_FRAMING = _refusal(
    431,
    "framing_too_large",
    "The sizes and extensions of chunks, and trailers, are too large for the body.",
    "Send larger chunks, without extensions and trailers.",
)
TOO_MANY_CONNECTIONS = _refusal(
    503,
    "too_many_connections",
    "There are more connections than `gateway.max_connections` allows.",
    "Try again later, or raise `gateway.max_connections`.",
    retry=True,
)
TOO_MANY_OF_ADDRESS = _refusal(
    503,
    "too_many_connections",
    "This address has more connections than `gateway.max_connections_per_address` allows.",
    "Use fewer connections, or raise the limit; list a proxy or balancer in `gateway.trusted_proxies`.",
    retry=True,
)
STOPPING = _refusal(
    503, "stopping", "The server is stopping; nothing was acknowledged.", "Send it again.", retry=True
)
UNKNOWN_VERSION = _refusal(505, "http_version", "The HTTP version is not supported.", "Use HTTP/1.1.")

# The only one that keeps the connection open: the same request may succeed a moment later.
BUSY_PROBLEM = Problem(
    503,
    "busy",
    "More bytes are in memory than `gateway.max_pending_bytes` allows; nothing was acknowledged.",
    hint="Send it again after a second.",
    retryable=True,
    headers={"Retry-After": "1"},
)
BUSY = BUSY_PROBLEM.response()


def body_too_large(limit: int) -> Response:
    """Return the 413 that is sent before the rest of the body is read."""
    return _refusal(
        413,
        "body_too_large",
        f"The body exceeds {limit} bytes (`gateway.max_body_bytes`).",
        "Send fewer events in one request.",
    )
