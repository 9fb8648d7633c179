"""Access to the page and its forms (G12).

On a loopback address without an admin token, requests from this machine under its local names are allowed.
Otherwise a client sends the token, in the `Authorization` header or in the sign-in form, which sets a cookie.
The cookie has an expiry, a random number and a signature, not the token. It is void after the sign-out, after
a change of the token, and after a restart of the server, which alone knows the key of the signature.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from urllib.parse import urlsplit

from headwater.clock import Clock, SystemClock
from headwater.http.auth import AdminToken, BearerKeys
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.page.templates import redirect
from headwater.page.urls import link
from headwater.settings import GatewaySettings

COOKIE = "headwater"
DAYS = 7
MAX_SIGNED_OUT = 10_000
_COOKIE = re.compile(r"[0-9]{1,14}\.[0-9a-f]{16}\.[0-9a-f]{64}")
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")

_FOREIGN = Problem(
    403,
    "foreign_origin",
    "The form was not sent by this page; nothing was changed.",
    hint="Use the page, or `headwater rejects`. A proxy must forward `Host` unchanged.",
).response()


def own_path(text: str) -> str:
    """The text if it is a path on this server, else the first page: a redirect never leaves this site."""
    return text if _OWN_PATH.fullmatch(text) else link("home")


class PageAccess:
    """Checks requests for pages, for data and for changes."""

    def __init__(self, settings: GatewaySettings, *, clock: Clock | None = None) -> None:
        self._admin = AdminToken(settings)
        self._keys = BearerKeys([])
        self._token = ""
        self._key = secrets.token_bytes(32)
        self._signed_out: dict[str, int] = {}  # the cookies that are void, and until when they would hold
        self._is_secure = settings.tls is not None
        self._clock = clock or SystemClock()
        self.reload(settings)

    @property
    def scheme(self) -> str:
        """The scheme of the page's own address."""
        return "https" if self._is_secure else "http"

    def reload(self, settings: GatewaySettings) -> None:
        """Use the admin token of these settings from now on; a new one ends all sign-ins."""
        token = settings.admin_token.strip()
        self._admin.reload(settings)
        self._keys.replace([token] if token else [])
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            self._token = token
            self._key = secrets.token_bytes(32)
        self.has_token = bool(token)

    def page(self, request: Request) -> Response | None:
        """The refusal of a request for a page, or a redirect to the sign-in form; for `Router.add`."""
        refusal = self.data(request)
        # A wrong key is answered 401, so that it is slowed like any other.
        if refusal is not None and self.has_token and "authorization" not in request.headers:
            return redirect(link("sign_in", next=own_path(request.target.decode("latin-1"))))
        return refusal

    def data(self, request: Request) -> Response | None:
        """The refusal of a request for data; None if it is allowed."""
        if self.has_token and self._has_cookie(request):
            return None
        return self._admin.authorize(request)

    def change(self, request: Request) -> Response | None:
        """The refusal of a form that changes something: not signed in, or not sent by this page."""
        return self.data(request) or self.form(request)

    def form(self, request: Request) -> Response | None:
        """The refusal of a form that this page did not send."""
        return None if _is_same_origin(request) else _FOREIGN

    def accepts_token(self, token: str) -> bool:
        """Whether this is the admin token; compared in constant time."""
        return self.has_token and self._keys.allow(f"Bearer {token.encode().decode('latin-1')}")

    def cookie(self) -> str:
        """The cookie of a browser that sent the token."""
        until = int(self._clock.now()) + DAYS * 86_400
        number = secrets.token_hex(8)
        return self._set(f"{until}.{number}.{self._signature(until, number)}", DAYS * 86_400)

    def sign_out(self, request: Request) -> None:
        """Make the cookie of this request void, wherever it was copied to."""
        now = self._clock.now()
        for cookie, until in list(self._signed_out.items()):
            if until <= now:
                del self._signed_out[cookie]
        self._signed_out |= self._valid_cookies(request)
        if len(self._signed_out) > MAX_SIGNED_OUT:
            self._key = secrets.token_bytes(32)  # all cookies are void
            self._signed_out.clear()

    def expired_cookie(self) -> str:
        """The value of `Set-Cookie` that removes the cookie."""
        return self._set("", 0)

    def _set(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _signature(self, until: int, number: str) -> str:
        return hmac.new(self._key, f"{until}.{number}".encode(), hashlib.sha256).hexdigest()

    def _has_cookie(self, request: Request) -> bool:
        return bool(self._valid_cookies(request))

    def _valid_cookies(self, request: Request) -> dict[str, int]:
        """The valid cookies of a request, with the times at which they expire."""
        found = {}
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name != COOKIE or not _COOKIE.fullmatch(value):
                continue
            text, number, signature = value.split(".")
            until = int(text)
            is_signed = hmac.compare_digest(signature, self._signature(until, number))
            if is_signed and until > self._clock.now() and value not in self._signed_out:
                found[value] = until
        return found


def _is_same_origin(request: Request) -> bool:
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
