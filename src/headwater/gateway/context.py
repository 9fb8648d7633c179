"""Fields that the gateway adds to an event: source_ip, _timestamp, api_key, event_id, user_agent, src,
traceparent.

Only top-level fields and those of `eventn_ctx` change. All other bytes stay as they were sent, even numbers
that no parser could represent.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from headwater.gateway.senders.tokens import Sender
from headwater.http.request import Request
from headwater.http.response import Problem

Fields = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(Fields)
_ENCODER = msgspec.json.Encoder()
_EMPTY = (b'""', b"null")
_API = msgspec.Raw(b'"api"')
_TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")  # W3C
_MAX_AGENT = 1024  # characters; a header may have 64 KiB, and each event of a request gets a copy
_NAMES_BYTES = 512  # names of the fields, and their values besides the user agent


class Context(NamedTuple):
    """The values for all events of one request. Times are UTC, to the microsecond."""

    sender: Sender
    source_ip: str
    user_agent: str
    timestamp: str
    traceparent: str = ""

    @property
    def size(self) -> int:
        """At most how many bytes an event grows by."""
        return _NAMES_BYTES + len(_ENCODER.encode(self.user_agent))

    def enrich(self, body: bytes, template: bytes = b"") -> tuple[bytes, bool]:
        """Return the event as one line, to be stored, and whether it came with an id of its own.

        Problem if it or its context is not an object.

        The address and time of a browser's event are overwritten. A server may send on behalf of others, so
        the values in its events are kept.
        """
        fields = _fields(apply_template(template, body) if template else body, "The event")
        is_server = self.sender.is_server
        _set(fields, "source_ip", self.source_ip, keep=is_server)
        _set(fields, "_timestamp", self.timestamp, keep=is_server)
        _set(fields, "api_key", self.sender.api_key)
        if is_server and _lacks(fields, "src"):
            fields["src"] = _API
        context = {} if _lacks(fields, "eventn_ctx") else _fields(fields["eventn_ctx"], "`eventn_ctx`")
        if not is_server and self.user_agent:
            _set(context, "user_agent", self.user_agent)
        has_id = not (_lacks(context, "event_id") and _lacks(fields, "eventn_ctx_event_id"))
        if not has_id:
            own = None if _lacks(fields, "event_id") else fields["event_id"]
            is_text = own is not None and _begins(own, b'"')
            context["event_id"] = own if own and is_text else msgspec.Raw(f'"{uuid.uuid4()}"'.encode())
        if self.traceparent and _lacks(fields, "eventn_ctx_traceparent"):
            _set(context, "traceparent", self.traceparent, keep=True)
        if context:
            fields["eventn_ctx"] = msgspec.Raw(_ENCODER.encode(context))
        line = _ENCODER.encode(fields)
        # line breaks between JSON tokens; strings cannot hold them unescaped
        if b"\n" in line or b"\r" in line:
            line = msgspec.json.format(line, indent=-1)
        return line, has_id


def request_context(request: Request, sender: Sender, address: str, now: float) -> Context:
    """Return the context of a request that arrived now."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    agent = request.headers.get("user-agent", "")[:_MAX_AGENT]
    trace = request.headers.get("traceparent", "")
    if trace and not _TRACEPARENT.fullmatch(trace):
        trace = ""
    return Context(sender, address, agent, stamp, trace)


def apply_template(template: bytes | msgspec.Raw, event: bytes | msgspec.Raw) -> bytes:
    """Return the event with the fields of the template that it lacks, recursively."""
    fields = _fields(template, "The template")
    for name, value in _fields(event, "The event").items():
        below = fields.get(name)
        if below is not None and _begins(below, b"{") and _begins(value, b"{"):
            fields[name] = msgspec.Raw(apply_template(below, value))
        else:
            fields[name] = value
    return _ENCODER.encode(fields)


def _fields(raw: bytes | msgspec.Raw, what: str) -> Fields:
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(
            400, "not_an_object", f"{what} is not a JSON object.", hint="Send a JSON object, `{…}`."
        ) from None


def _lacks(fields: Fields, name: str) -> bool:
    return name not in fields or memoryview(fields[name]) in _EMPTY


def _begins(raw: msgspec.Raw, mark: bytes) -> bool:
    return memoryview(raw)[:1] == mark


def _set(fields: Fields, name: str, value: str, *, keep: bool = False) -> None:
    if not (keep and not _lacks(fields, name)):
        fields[name] = msgspec.Raw(_ENCODER.encode(value))
