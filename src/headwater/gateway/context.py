"""Context enrichment: what the gateway knows about an event and the event does not (seed 003).

Only top-level fields and those of `eventn_ctx` are touched; the bytes of everything else stay as they came,
also a number that no parser of ours could hold.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headwater.gateway.tokens import Sender
from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.network import read_address

__all__ = ["Addresses", "Context", "merged"]

Fields = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(Fields)
_ENCODER = msgspec.json.Encoder()
_EMPTY = (b'""', b"null")
_API = msgspec.Raw(b'"api"')
_MAX_AGENT = 4096  # a header may have 64 KiB; no user agent has


class Context(NamedTuple):
    """What all events of one request get. Times are UTC, to the microsecond."""

    sender: Sender
    source_ip: str
    user_agent: str
    timestamp: str

    @classmethod
    def of(cls, request: Request, addresses: Addresses, now: float) -> Context:
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        agent = request.headers.get("user-agent", "")[:_MAX_AGENT]
        return cls(request.sender, addresses.of(request), agent, stamp)

    def enrich(self, body: bytes, template: bytes = b"") -> bytes:
        """The event as it is stored: one line. Problem if it is not an object, or its context is none.

        A browser is not believed about its address, nor about the time; a server that brings them, or the
        event's id, may send on behalf of others, and keeps its own.
        """
        fields = _fields(merged(template, body) if template else body, "The event")
        is_server = self.sender.is_server
        _set(fields, "source_ip", self.source_ip, keep=is_server)
        _set(fields, "_timestamp", self.timestamp, keep=is_server)
        _set(fields, "api_key", self.sender.api_key)
        if is_server and _lacks(fields, "src"):
            fields["src"] = _API
        context = {} if _lacks(fields, "eventn_ctx") else _fields(fields["eventn_ctx"], "`eventn_ctx`")
        if not is_server and self.user_agent:
            _set(context, "user_agent", self.user_agent)
        if _lacks(context, "event_id") and _lacks(fields, "eventn_ctx_event_id"):
            own = None if _lacks(fields, "event_id") else fields["event_id"]
            is_text = own is not None and _begins(own, b'"')
            context["event_id"] = own if own and is_text else msgspec.Raw(f'"{uuid.uuid4()}"'.encode())
        if context:
            fields["eventn_ctx"] = msgspec.Raw(_ENCODER.encode(context))
        line = _ENCODER.encode(fields)
        # white space between the tokens of what was kept; in strings they cannot stand unescaped
        return msgspec.json.format(line, indent=-1) if b"\n" in line or b"\r" in line else line


def merged(template: bytes | msgspec.Raw, event: bytes | msgspec.Raw) -> bytes:
    """The event with the fields of the template that it lacks, object by object; the event's own win."""
    fields = _fields(template, "The template")
    for name, value in _fields(event, "The event").items():
        below = fields.get(name)
        if below is not None and _begins(below, b"{") and _begins(value, b"{"):
            fields[name] = msgspec.Raw(merged(below, value))
        else:
            fields[name] = value
    return _ENCODER.encode(fields)


class Addresses:
    """Where requests come from: the connection's other end, or what a trusted proxy says it was."""

    def __init__(self, trusted: Sequence[str]) -> None:
        networks = [ipaddress.ip_network(each) for each in trusted]

        def is_trusted(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
            return any(address in network for network in networks)

        @lru_cache(4096)
        def find(peer: str, forwarded: str) -> str:
            # from the nearest to the farthest; what lies beyond the first untrusted one may be made up
            found = read_address(peer)
            for text in reversed(forwarded.split(",")) if forwarded else ():
                if found is None or not is_trusted(found):
                    break
                if (farther := read_address(text)) is None:
                    break
                found = farther
            return str(found) if found is not None else peer

        self._find = find

    def of(self, request: Request) -> str:
        return self._find(request.peer, request.headers.get("x-forwarded-for", ""))


def _fields(raw: bytes | msgspec.Raw, what: str) -> Fields:
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(
            400, "not_an_object", f"{what} is not a JSON object.", hint="Look at what the sender sends."
        ) from None


def _lacks(fields: Fields, name: str) -> bool:
    return name not in fields or memoryview(fields[name]) in _EMPTY


def _begins(raw: msgspec.Raw, mark: bytes) -> bool:
    return memoryview(raw)[:1] == mark


def _set(fields: Fields, name: str, value: str, *, keep: bool = False) -> None:
    if not (keep and not _lacks(fields, name)):
        fields[name] = msgspec.Raw(_ENCODER.encode(value))
