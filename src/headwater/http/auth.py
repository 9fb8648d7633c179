"""Admin: who may read what was taken in. Producers' keys do not open this, and the other way round (G12)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable

from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.settings import GatewaySettings

__all__ = ["Access", "Admin", "is_loopback"]


class Access:
    """The API keys of the settings; with none of them everybody may send."""

    def __init__(self, keys: Iterable[str]) -> None:
        # Digests have one length, so that not even the length of a key can be measured.
        # A key with other than ASCII characters is sent as UTF-8 by some clients and as latin-1 by others.
        self._digests = tuple(_digest(raw) for key in keys for raw in _spellings(key))
        self.is_open = not self._digests
        self.refusal = Problem(
            401,
            "unauthorized",
            "The API key is missing or unknown.",
            hint="Send `Authorization: Bearer <key>` with one of `gateway.api_keys`.",
            headers={"WWW-Authenticate": "Bearer"},
        ).response()

    def allows(self, authorization: str | None) -> bool:
        """Whether the `Authorization` header shows a known key. All keys are compared, whichever fits."""
        if self.is_open:
            return True
        scheme, _, shown = (authorization or "").partition(" ")
        digest = _digest(shown.strip().encode("latin-1"))  # the bytes as they came
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _spellings(key: str) -> set[bytes]:
    try:
        return {key.encode("utf-8"), key.encode("latin-1")}
    except UnicodeEncodeError:
        return {key.encode("utf-8")}


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


class Admin:
    """Asks for `gateway.admin_token`; without one, serves this machine only, and only under its own names."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._access = Access([settings.admin_token] if settings.admin_token.strip() else [])
        self._is_local = is_loopback(settings.host)
        self._unauthorized = Problem(
            401,
            "unauthorized",
            "The admin token is missing or unknown.",
            hint="Send `Authorization: Bearer <token>` with `gateway.admin_token`.",
            headers={"WWW-Authenticate": "Bearer"},
        ).response()
        self._closed = Problem(
            403,
            "forbidden",
            "This is served to this machine only, as long as there is no admin token.",
            hint="Set `gateway.admin_token`, and send it as `Authorization: Bearer <token>`.",
        ).response()

    def admit(self, request: Request) -> Response | None:
        """The refusal, if there is one; for `Routes.add`."""
        if not self._access.is_open:
            allowed = self._access.allows(request.headers.get("authorization"))
            return None if allowed else self._unauthorized
        # A foreign page may give its own name this machine's address, and read us through the browser; but
        # the browser tells the name.
        if self._is_local and _is_own_name(request.headers.get("host", "")):
            return None
        return self._closed


def is_loopback(host: str) -> bool:
    """Whether the address is reached from this machine only."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_own_name(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    return not name or is_loopback(name)
