"""Admin: who may read what was taken in. Producers' keys do not open this, and the other way round (G12)."""

from __future__ import annotations

import ipaddress

from headwater.gateway.access import Access
from headwater.gateway.requests import Request
from headwater.gateway.responses import Problem, Response
from headwater.settings import GatewaySettings

__all__ = ["Admin", "is_loopback"]


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
