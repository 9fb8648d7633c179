"""Refusals: the answers that the wire itself gives, before or instead of the application."""

from __future__ import annotations

from headwater.http.response import Problem, Response

__all__ = [
    "BUSY",
    "CONNECT",
    "FULL",
    "HEAD_TOO_LARGE",
    "MALFORMED",
    "MAX_HEAD_BYTES",
    "NO_HOST",
    "ODD_TRANSFER",
    "STOPPING",
    "TIMEOUT",
    "UNKNOWN_EXPECTATION",
    "UNKNOWN_VERSION",
    "body_too_large",
]

MAX_HEAD_BYTES = 64 * 1024  # request line and headers; the common servers allow 8 to 64 KiB


def _refusal(status: int, code: str, text: str, hint: str, *, retry: bool = False) -> Response:
    headers = {"Retry-After": "1"} if retry else {}
    problem = Problem(status, code, text, hint=hint, retryable=retry, headers=headers, close=True)
    return problem.response()


MALFORMED = _refusal(
    400, "bad_http", "This is not HTTP/1.1.", "Look at what lies between the client and the gateway."
)
NO_HOST = _refusal(400, "bad_http", "The `Host` header is missing.", "HTTP/1.1 asks for one.")
ODD_TRANSFER = _refusal(400, "bad_http", "Unknown Transfer-Encoding.", "Use chunked, or Content-Length.")
CONNECT = _refusal(405, "method_not_allowed", "This is not a proxy.", "Use GET or POST.")
TIMEOUT = _refusal(
    408, "request_timeout", "The request did not arrive in time.", "Send it again.", retry=True
)
UNKNOWN_EXPECTATION = _refusal(
    417, "unknown_expectation", "Unknown `Expect` header.", "Only 100-continue is understood."
)
HEAD_TOO_LARGE = _refusal(
    431, "headers_too_large", f"Request line and headers exceed {MAX_HEAD_BYTES} bytes.", "Send less."
)
FULL = _refusal(
    503,
    "too_many_connections",
    "There are more connections than `gateway.max_connections` allows.",
    "Try again later, or raise the setting.",
    retry=True,
)
STOPPING = _refusal(
    503, "stopping", "The gateway is stopping; nothing was acknowledged.", "Send it again.", retry=True
)
UNKNOWN_VERSION = _refusal(505, "http_version", "Only HTTP/1.0 and HTTP/1.1 are spoken.", "Use HTTP/1.1.")

# The one refusal after which the connection lives on: a moment later the same request may be welcome.
BUSY = Problem(
    503,
    "busy",
    "More bytes wait for the disk than `gateway.max_pending_bytes` allows; nothing was acknowledged.",
    hint="Send it again after a moment.",
    retryable=True,
    headers={"Retry-After": "1"},
).response()


def body_too_large(limit: int) -> Response:
    """413, told before the rest of the body is read."""
    return _refusal(
        413,
        "body_too_large",
        f"The body exceeds {limit} bytes (`gateway.max_body_bytes`).",
        "Send fewer events in one request.",
    )
