"""Tokens of the settings: who sends an event, allowed origins, rate limits (G12).

A secret is looked up by its digest, so timing reveals neither the secret nor its length. It is never logged.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from headwater.clock import Clock
from headwater.gateway.senders.origins import matches
from headwater.http.request import Request
from headwater.settings import TokenSettings

MAX_PARAMETERS = 100  # of a query that are looked at


class RateLimit:
    """A token bucket of events a second that holds one second's events; rate 0 means no limit.

    A request is allowed while the bucket is not empty, and may spend more than it holds, so that a batch
    larger than one second's events is possible.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._left = max(rate, 1.0)
        self._at = clock.monotonic()

    def seconds_to_wait(self) -> int:
        """Return 0 if a request is allowed, otherwise the whole seconds until one is."""
        if not self._rate:
            return 0
        now = self._clock.monotonic()
        self._left = min(max(self._rate, 1.0), self._left + (now - self._at) * self._rate)
        self._at = now
        return 0 if self._left > 0 else max(1, math.ceil(-self._left / self._rate))

    def spend(self, count: int) -> None:
        """Count events that were taken."""
        if self._rate:
            self._left -= count


class Token:
    """One token of the settings."""

    def __init__(self, settings: TokenSettings, clock: Clock) -> None:
        self.id = settings.id
        self.origins = settings.origins
        self.rate_limit = RateLimit(settings.rate_limit_per_second, clock)

    def allows(self, origin: str) -> bool:
        """Return whether a page of this origin may send. Without a list all may."""
        return not self.origins or any(matches(origin, pattern) for pattern in self.origins)


class Sender(NamedTuple):
    """The token whose secret a request has. `api_key` is stored in the event: never a server's secret."""

    token: Token
    is_server: bool
    api_key: str


class Tokens:
    """All tokens of the settings."""

    def __init__(self, settings: Sequence[TokenSettings], clock: Clock) -> None:
        self._clock = clock
        self._settings: dict[str, tuple[TokenSettings, Token]] = {}
        self.replace(settings)

    def replace(self, settings: Sequence[TokenSettings]) -> None:
        """Know these tokens from now on; one that has not changed keeps its rate limit as it is."""
        found: dict[str, tuple[TokenSettings, Token]] = {}
        senders: dict[bytes, Sender] = {}
        for each in settings:
            before = self._settings.get(each.id)
            token = before[1] if before is not None and before[0] == each else Token(each, self._clock)
            found[each.id] = (each, token)
            if each.client_secret.strip():
                senders[_digest(each.client_secret)] = Sender(token, False, each.client_secret)
            if each.server_secret.strip():
                senders[_digest(each.server_secret)] = Sender(token, True, token.id)
        self._settings = found
        self._senders = senders
        self.all = [token for _, token in found.values()]

    def sender(self, request: Request) -> Sender | None:
        """Return the sender whose secret the request has; None if it has no known secret."""
        secret = _secret(request)
        return self._senders.get(_digest(secret)) if secret else None


def _secret(request: Request) -> str:
    """Return the secret of a request from the first place that has one."""
    headers = request.headers
    query = _parameters(request.query) if request.query else []
    for name, value in query:
        if name == "token":
            return value
    for name in ("x-auth-token", "api_key"):
        if name in headers:
            return headers[name].strip()
    for name, value in query:  # `p_…`: a name that tracking blockers do not match
        if name.startswith("p_"):
            return value
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
        except ValueError:  # binascii.Error and UnicodeDecodeError are ValueErrors
            return ""
    return ""


def _parameters(query: str) -> list[tuple[str, str]]:
    """The first parameters of a query. Anyone may send thousands of them, before a secret is known."""
    return parse_qsl("&".join(query.split("&", MAX_PARAMETERS)[:MAX_PARAMETERS]), keep_blank_values=True)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
