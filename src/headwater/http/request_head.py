"""Checks heads of requests: one that a proxy in between could read in another way is refused (G12).

The parser refuses most of it: bare line feeds, folded headers, a second Content-Length, Content-Length beside
Transfer-Encoding. Here is the rest.
"""

from __future__ import annotations

import re

from headwater.http import response as responses
from headwater.http.request import Request
from headwater.http.response import Response

_HOST = re.compile(r"[\w.~%!$&'()*+,;=:\[\]-]*", re.ASCII)
_ONCE = ("authorization", "content-length", "content-type", "expect", "transfer-encoding")
_UPGRADE = ("upgrade", "http2-settings")


def repetition_refusal(name: str, repeated: int) -> Response | None:
    """Return the refusal of a header that came before; None if it may be a list."""
    if name == "host":
        return responses.BAD_HOST
    if repeated > responses.MAX_HEADERS:
        return responses.HEAD_TOO_LARGE
    return responses.REPEATED_HEADER if name in _ONCE else None


def head_refusal(request: Request, known_host: str | None) -> Response | None:
    """Return the refusal of a head that is ambiguous or too large; `known_host` is known to be a host."""
    headers = request.headers
    if request.version == "1.1":
        host = headers.get("host")
        if host is None:
            return responses.NO_HOST
        if host != known_host and not is_host(host):
            return responses.BAD_HOST
    elif request.version != "1.0":
        return responses.UNKNOWN_VERSION
    elif "close" in headers.get("connection", "").lower():
        request.closes = True  # also with `keep-alive` beside it
    coding = headers.get("transfer-encoding")
    if coding is not None and (request.version == "1.0" or coding.strip().lower() != "chunked"):
        return responses.UNKNOWN_TRANSFER_ENCODING
    return responses.HEAD_TOO_LARGE if len(headers) > responses.MAX_HEADERS else None


def is_host(text: str) -> bool:
    """Return whether a `Host` header has the form of a host with or without a port."""
    return _HOST.fullmatch(text.strip()) is not None


def head_bytes(request: Request) -> int:
    """Return the size of target and headers."""
    headers = request.headers
    return len(request.target) + sum(map(len, headers)) + sum(map(len, headers.values()))


def head_without_upgrade(request: Request) -> bytes:
    """Return the head as if it had not offered another protocol, which RFC 9110 allows to decline.

    Java's HTTP clients offer h2c or TLS with ordinary POSTs.
    """
    lines = [b"%b %b HTTP/%b" % (request.method.encode(), request.target, request.version.encode())]
    for name, value in request.headers.items():
        if name == "connection":
            options = (option for option in value.split(",") if option.strip().lower() not in _UPGRADE)
            value = ",".join(options)
        if name not in _UPGRADE:
            lines.append(f"{name}: {value}".encode("latin-1"))
    return b"\r\n".join([*lines, b"", b""])
