"""Tokens: who sends an event, from which page, and how many a second (G12).

A secret is looked up by its digest, so neither it nor its length can be measured, and it is never logged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from headwater.clock import Clock
from headwater.http.request import Request
from headwater.settings import TokenSettings

__all__ = ["Bucket", "Sender", "Token", "Tokens"]


class Bucket:
    """So many events a second, with a second's worth of them at once; rate 0 is no limit.

    A request is let in while the bucket is not empty and may take more than is left, so that a batch larger
    than a second's worth is delayed, not refused for ever.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._left = max(rate, 1.0)
        self._at = clock.monotonic()

    def wait_seconds(self) -> int:
        """0 when a request may come in, else the whole seconds until one may."""
        if not self._rate:
            return 0
        now = self._clock.monotonic()
        self._left = min(max(self._rate, 1.0), self._left + (now - self._at) * self._rate)
        self._at = now
        return 0 if self._left > 0 else max(1, math.ceil(-self._left / self._rate))

    def take(self, count: int) -> None:
        """Count events that came in."""
        if self._rate:
            self._left -= count


class Token:
    """One token of the settings."""

    def __init__(self, settings: TokenSettings, clock: Clock) -> None:
        self.id = settings.id
        self.origins = settings.origins
        self.bucket = Bucket(settings.rate_limit_per_second, clock)

    def allows(self, origin: str) -> bool:
        """Whether a page of this origin may send. Without a list all may."""
        return not self.origins or any(_matches(origin, pattern) for pattern in self.origins)


class Sender(NamedTuple):
    """Whose secret a request showed. `api_key` is what goes into the event: never a server's secret."""

    token: Token
    is_server: bool
    api_key: str


class Tokens:
    """All tokens of the settings."""

    def __init__(self, settings: Sequence[TokenSettings], clock: Clock) -> None:
        self._senders: dict[bytes, Sender] = {}
        self.all = [Token(each, clock) for each in settings]
        for token, each in zip(self.all, settings, strict=True):
            if each.client_secret.strip():
                self._senders[_digest(each.client_secret)] = Sender(token, False, each.client_secret)
            if each.server_secret.strip():
                self._senders[_digest(each.server_secret)] = Sender(token, True, token.id)

    def sender(self, request: Request) -> Sender | None:
        """Whose secret the request shows; None if it shows none that is known."""
        shown = _shown(request)
        if not shown:
            return None
        digest = _digest(shown)
        found = self._senders.get(digest)
        known = digest if found is not None else _NOBODY
        return found if hmac.compare_digest(digest, known) else None


def _shown(request: Request) -> str:
    """The secret of a request, in the places where clients put it, the plainest first."""
    headers = request.headers
    query = parse_qsl(request.query, keep_blank_values=True) if request.query else []
    for name, value in query:
        if name == "token":
            return value
    for name in ("x-auth-token", "api_key"):
        if name in headers:
            return headers[name].strip()
    for name, value in query:  # `p_…`: the name that blockers of trackers do not know
        if name.startswith("p_"):
            return value
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
        except ValueError:  # not base64, not ASCII, not UTF-8: all of them are one
            return ""
    return ""


def _matches(origin: str, pattern: str) -> bool:
    if pattern == "*" or origin.lower() == pattern.lower().rstrip("/"):
        return True
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False  # `http://[` is no origin
    pattern = pattern.lower()
    if pattern.startswith("*."):  # a domain and all below it, by any scheme and port
        host = parts.hostname or ""
        return host == pattern[2:] or host.endswith(pattern[1:])
    return "://" not in pattern and pattern in (parts.netloc, parts.hostname)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


_NOBODY = b"\0" * 32
