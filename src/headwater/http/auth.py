"""Bearer keys of producers and the admin token, compared in constant time (G12)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.settings import GatewaySettings
from headwater.system.network import is_from_this_machine, is_loopback, read_address


class BearerKeys:
    """The keys of a setting. Without keys every request is allowed."""

    def __init__(self, keys: Iterable[str], setting: str = "gateway.api_keys", name: str = "API key") -> None:
        self._digests: tuple[bytes, ...] = ()
        self.replace(keys)
        self.refusal = Problem(
            401,
            "unauthorized",
            f"The {name} is missing or unknown.",
            hint=f"Send `Authorization: Bearer <{name}>` as `{setting}` has it.",
            headers={"WWW-Authenticate": "Bearer"},
        ).response()

    def replace(self, keys: Iterable[str]) -> None:
        """Allow these keys from now on, and no others."""
        # Digests have one length, so the length of a key cannot be measured.
        # Some clients send characters beyond ASCII as UTF-8, others as latin-1.
        self._digests = tuple(_digest(raw) for key in keys for raw in _spellings(key))

    @property
    def is_empty(self) -> bool:
        """Whether there are no keys, so that every request is allowed."""
        return not self._digests

    def allow(self, authorization: str | None) -> bool:
        """Return whether the `Authorization` header has a known key. All keys are always compared."""
        if self.is_empty:
            return True
        scheme, _, shown = (authorization or "").partition(" ")
        digest = _digest(shown.strip().encode("latin-1"))  # the bytes as they were sent
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _admin_token(settings: GatewaySettings) -> tuple[str, ...]:
    return (settings.admin_token,) if settings.admin_token.strip() else ()


def _spellings(key: str) -> set[bytes]:
    try:
        return {key.encode("utf-8"), key.encode("latin-1")}
    except UnicodeEncodeError:
        return {key.encode("utf-8")}


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


class AdminToken:
    """Requires `gateway.admin_token`. Without one, only this machine is served, and only under its own names.

    Producers' keys do not grant this access, and the admin token does not grant theirs.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._keys = BearerKeys(_admin_token(settings), "gateway.admin_token", "admin token")
        self._is_local = is_loopback(settings.host)
        self._forbidden = Problem(
            403,
            "forbidden",
            "Without an admin token this is served to this machine only.",
            hint="Set `gateway.admin_token`, and send it as `Authorization: Bearer <token>`.",
        ).response()

    def reload(self, settings: GatewaySettings) -> None:
        """Use the admin token of these settings from now on."""
        self._keys.replace(_admin_token(settings))

    def authorize(self, request: Request) -> Response | None:
        """Return the refusal, or None if the request is allowed; for `Router.serve`."""
        if not self._keys.is_empty:
            allowed = self._keys.allow(request.headers.get("authorization"))
            return None if allowed else self._keys.refusal
        # A foreign site may resolve its own name to this machine's address and read us through the browser,
        # but the browser then sends that name.
        # Behind a proxy on this machine all requests come from a loopback address, also those of strangers.
        is_local = self._is_local and _is_local_client(request)
        if is_local and _is_own_name(request.headers.get("host", "")):
            return None
        return self._forbidden


class OperatorAccess:
    """Guards what names outlets and their URLs: metrics, and the reasons of /readyz.

    With API keys or an admin token, one of them is required. Without, the `Host` header must have a name that
    no foreign site can have: a site may resolve its own name to our address and read us through a browser
    in our network. An address, a name without a dot and a name of a private zone cannot be registered, and
    these are what scrapers in that network use.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        keys = (*settings.key_texts, *_admin_token(settings))
        self._keys = BearerKeys(keys, "gateway.api_keys` or `gateway.admin_token", "API key or admin token")
        self._is_local = is_loopback(settings.host)
        self._own_name = settings.host.lower()
        self._forbidden = Problem(
            403,
            "forbidden",
            "Without a key this is served under an address or a local name of this server only.",
            hint="Set `gateway.api_keys` or `gateway.admin_token`; send `Authorization: Bearer <key>`.",
        ).response()

    def reload(self, settings: GatewaySettings) -> None:
        """Use the keys and the admin token of these settings from now on."""
        self._keys.replace((*settings.key_texts, *_admin_token(settings)))

    def authorize(self, request: Request) -> Response | None:
        """Return the refusal, or None if the request is allowed; for `Router.serve`."""
        if not self._keys.is_empty:
            allowed = self._keys.allow(request.headers.get("authorization"))
            return None if allowed else self._keys.refusal
        host = request.headers.get("host", "")
        if self._is_local:
            is_allowed = _is_own_name(host) and _is_local_client(request)
        else:
            is_allowed = _is_own_name(host) or _is_private_name(host) or _name(host) == self._own_name
        return None if is_allowed else self._forbidden


# Zones that are reserved, or that the root of the DNS does not delegate.
_PRIVATE_ZONES = (
    *(".local", ".localhost", ".internal", ".svc", ".home.arpa"),
    *(".corp", ".home", ".intranet", ".lan", ".private"),
)


def _is_private_name(host: str) -> bool:
    name = _name(host)
    return "." not in name or name.endswith(_PRIVATE_ZONES) or read_address(host) is not None


def _is_local_client(request: Request) -> bool:
    # nginx forwards by HTTP/1.0 by default, under our own name and without a header that
    # says so; browsers and clients of today do not use it.
    return request.version != "1.0" and is_from_this_machine(request.peer, request.headers)


def _is_own_name(host: str) -> bool:
    name = _name(host)
    return not name or is_loopback(name)


def _name(host: str) -> str:
    name, colon, port = host.strip().rpartition(":")
    if not colon or not port.isdigit():
        name = host.strip()
    return name.lower().rstrip(".")
