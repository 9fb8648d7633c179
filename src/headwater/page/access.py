"""The guard: who may see the page, and who may change something by it (G12).

On a loopback address without an admin token: this machine, under its own names. Else who has shown the token:
in the `Authorization` header, or in the form of the page, which is answered with a cookie. The cookie holds
no token, but a proof made of it that ends: a new token, or time, makes it void.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import urlsplit

from headwater.clock import Clock, SystemClock
from headwater.http.auth import AdminToken, BearerKeys
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.page.templating import redirect
from headwater.page.urls import link
from headwater.settings import GatewaySettings

__all__ = ["Guard", "own_path"]

COOKIE = "headwater"
DAYS = 7
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")

_FOREIGN = Problem(
    403,
    "foreign_origin",
    "This was sent by another site, or by no page at all; nothing was changed.",
    hint="Use the page itself, or `headwater rejects`. A proxy in front must pass `Host` on as it came.",
).response()


def own_path(text: str) -> str:
    """The text where it is a path on this server, else the first view: no other site can be led to."""
    return text if _OWN_PATH.fullmatch(text) else link("pipeline")


class Guard:
    """Three kinds of gates: to pages, which lead to the form; to data; and to changes."""

    def __init__(self, settings: GatewaySettings, *, clock: Clock | None = None) -> None:
        token = settings.admin_token.strip()
        self._admin = AdminToken(settings)
        self._keys = BearerKeys([token] if token else [])
        self._key = hashlib.sha256(b"headwater page\0" + token.encode()).digest()
        self._is_secure = settings.tls is not None
        self._clock = clock or SystemClock()
        self.has_token = bool(token)

    def page(self, request: Request) -> Response | None:
        """For `Router.add`: the refusal, or the way to the form."""
        refusal = self.data(request)
        if refusal is not None and self.has_token:
            return redirect(link("login", next=own_path(request.target.decode("latin-1"))))
        return refusal

    def data(self, request: Request) -> Response | None:
        """For what pages fetch: the refusal, if there is one."""
        if self.has_token and self._has_proof(request):
            return None
        return self._admin.authorize(request)

    def change(self, request: Request) -> Response | None:
        """For what changes something: only out of our own page."""
        return self.data(request) or self.form(request)

    def form(self, request: Request) -> Response | None:
        """Whether a form of our own page was sent."""
        return None if _is_own(request) else _FOREIGN

    def opens(self, token: str) -> bool:
        """Whether this is the admin token; compared in constant time."""
        return self.has_token and self._keys.allow(f"Bearer {token.encode().decode('latin-1')}")

    def cookie(self) -> str:
        """What a browser is given that has shown the token."""
        until = int(self._clock.now()) + DAYS * 86_400
        return self._set(f"{until}.{self._proof(until)}", DAYS * 86_400)

    def no_cookie(self) -> str:
        """Takes it away again."""
        return self._set("", 0)

    def _set(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _proof(self, until: int) -> str:
        return hmac.new(self._key, str(until).encode(), hashlib.sha256).hexdigest()

    def _has_proof(self, request: Request) -> bool:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name != COOKIE:
                continue
            until, _, proof = value.partition(".")
            if not (until.isascii() and until.isdigit() and len(until) < 15 and proof.isascii()):
                continue
            is_true = hmac.compare_digest(proof, self._proof(int(until)))
            if is_true and int(until) > self._clock.now():
                return True
        return False


def _is_own(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return site is not None
    try:
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:
        return False
