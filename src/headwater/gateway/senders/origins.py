"""Origins of pages: patterns of the settings, requests that a browser sent across sites, and CORS headers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.system.network import is_loopback, read_address

PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Content-Type, Content-Encoding, X-Auth-Token, Authorization, api_key, Idempotency-Key, traceparent"
    ),
    "Access-Control-Max-Age": "86400",
}


class Origins:
    """The pages that may send to endpoints for servers: none, or those of `gateway.origins`.

    A page of any site can send a POST to a gateway that its visitor can reach. The browser then says so, by
    `Sec-Fetch-Site` or `Origin`, which other clients do not send.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._refusal = Problem(
            403,
            "foreign_origin",
            "A page of another site sent this from a browser; nothing was stored.",
            hint="Send it from a server, or add the page's origin to `gateway.origins`.",
        ).response()

    def allows(self, origin: str) -> bool:
        """Return whether pages of this origin may send."""
        return any(matches(origin, pattern) for pattern in self._patterns)

    def refusal(self, request: Request) -> Response | None:
        """Return the refusal of a request that a browser sent across sites; for `Router.serve`."""
        headers = request.headers
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None and origin is None:
            return None
        host = headers.get("host", "")
        if origin is not None and self.allows(origin):
            return None
        is_same = site in ("same-origin", "none") if site is not None else _is_at(origin or "", host)
        return None if is_same and _is_fixed(host) else self._refusal

    def preflight(self, request: Request) -> None:
        """Answer whether a page may send."""
        headers = PREFLIGHT_HEADERS if (own := self.cors(request)) else {}
        request.respond(Response(204, headers={"Allow": "OPTIONS, POST"} | headers | own))

    def cors(self, request: Request) -> dict[str, str]:
        """Return the headers with which a page of an allowed origin may read the answer."""
        if not self._patterns:
            return {}
        origin = request.headers.get("origin", "")
        return cors(origin) if self.allows(origin) else {}


def matches(origin: str, pattern: str) -> bool:
    """Return whether an origin fits a pattern such as `https://shop.example` or `*.example.org`."""
    if pattern == "*" or origin.lower() == pattern.lower().rstrip("/"):
        return True
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False  # such as `http://[`
    pattern = pattern.lower()
    if pattern.startswith("*."):  # a domain and its subdomains, with any scheme and port
        host = parts.hostname or ""
        return host == pattern[2:] or host.endswith(pattern[1:])
    return "://" not in pattern and pattern in (parts.netloc, parts.hostname)


def cors(origin: str) -> dict[str, str]:
    """Return the headers with which a page of this origin may read the answer."""
    # A header's value is sent back in a header: only values that an origin can have.
    if not origin or not origin.isascii() or not origin.isprintable() or len(origin) > 512:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def _is_at(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _is_fixed(host: str) -> bool:
    """Return whether no foreign site can have this name.

    A site may resolve its own name to this machine's address, and its pages then are of the same origin.
    """
    name, colon, port = host.rpartition(":")
    return is_loopback(name if colon and port.isdigit() else host) or read_address(host) is not None
