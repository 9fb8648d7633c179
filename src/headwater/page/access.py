"""Access to the page and its forms (G12).

On a loopback address without an admin token, requests from this machine under its local names are allowed.
Otherwise a client sends the token, in the `Authorization` header or in the sign-in form, which sets a cookie.
The cookie has an expiry and a signature derived from the token, not the token itself; changing the token
invalidates it.
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
from headwater.page.templates import redirect
from headwater.page.urls import link
from headwater.settings import GatewaySettings

COOKIE = "headwater"
DAYS = 7
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")

_FOREIGN = Problem(
    403,
    "foreign_origin",
    "The form was not sent by this page; nothing was changed.",
    hint="Use the page, or `headwater rejects`. A proxy must forward `Host` unchanged.",
).response()


def own_path(text: str) -> str:
    """The text if it is a path on this server, else the first page: a redirect never leaves this site."""
    return text if _OWN_PATH.fullmatch(text) else link("system")


class PageAccess:
    """Checks requests for pages, for data and for changes."""

    def __init__(self, settings: GatewaySettings, *, clock: Clock | None = None) -> None:
        self._admin = AdminToken(settings)
        self._keys = BearerKeys([])
        self._is_secure = settings.tls is not None
        self._clock = clock or SystemClock()
        self.reload(settings)

    def reload(self, settings: GatewaySettings) -> None:
        """Use the admin token of these settings from now on; a new one ends all sign-ins."""
        token = settings.admin_token.strip()
        self._admin.reload(settings)
        self._keys.replace([token] if token else [])
        self._key = hashlib.sha256(b"headwater page\0" + token.encode()).digest()
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
        return self._set(f"{until}.{self._cookie_signature(until)}", DAYS * 86_400)

    def expired_cookie(self) -> str:
        """The value of `Set-Cookie` that removes the cookie."""
        return self._set("", 0)

    def _set(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _cookie_signature(self, until: int) -> str:
        return hmac.new(self._key, str(until).encode(), hashlib.sha256).hexdigest()

    def _has_cookie(self, request: Request) -> bool:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name != COOKIE:
                continue
            until, _, signature = value.partition(".")
            if not (until.isascii() and until.isdigit() and len(until) < 15 and signature.isascii()):
                continue
            is_valid = hmac.compare_digest(signature, self._cookie_signature(int(until)))
            if is_valid and int(until) > self._clock.now():
                return True
        return False


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
