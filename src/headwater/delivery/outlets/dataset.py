"""The `dataset` outlet: DataSet's addEvents API, with sessions, threads and logs.

A request, before compression:

    {"token": "…", "session": "<client>-<key>", "sessionInfo": {the key's fields, serverHost, …},
     "events":  [{"ts": "<ns>", "sev": 3, "thread": "…", "log": "…", "attrs": {"a.b": 1, …}}, …],
     "threads": [{"id": "…", "name": "…"}, …],
     "logs":    [{"id": "…", "attrs": {…}}, …]}

An event's nested objects become dotted attributes and its lists JSON text. The fields of `group_by` go into
`sessionInfo`, those of `log_fields` into `logs`; neither is repeated in the events. `ts` is text, since a
nanosecond count is larger than a JSON reader's safe integers. The receiver takes one request at a time per
session, may be unreachable for minutes, and takes 6 MB.
"""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import orjson

from headwater.clock import Clock
from headwater.delivery.keys import ABSENT, Key, Keys, find, parse_pointer
from headwater.delivery.outlets.base import DELIVERED, Batch, Results
from headwater.delivery.outlets.http_client import (
    Compression,
    HttpAnswer,
    HttpReceiverOutlet,
    TlsOptions,
    bare_url,
    excerpt,
)
from headwater.delivery.trim import trim_json
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event, fitted
from headwater.json_decoder import json_decoder
from headwater.settings import OutletSettings, doc

RETRYABLE_ANSWERS = ("error/server", "error/client/noPermission")
"""Prefixes of an answer's `status` for which the event is not at fault; other client errors are its fault."""

SEVERITIES = {
    **dict.fromkeys(("finest", "trace"), 0),
    **dict.fromkeys(("finer", "verbose"), 1),
    **dict.fromkeys(("fine", "debug"), 2),
    **dict.fromkeys(("info", "information", "notice"), 3),
    **dict.fromkeys(("warn", "warning"), 4),
    "error": 5,
    **dict.fromkeys(("fatal", "critical", "alert", "emergency"), 6),
}
DEFAULT_SEVERITY = 3
_NS = 1_000_000_000


class DataSetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The address of DataSet, and the fields of an event that it treats specially."""

    api_key: Annotated[str, doc("Token with write access to logs; write it as `${env.NAME}`.")]
    url: Annotated[str, doc("Base URL; `/api/addEvents` is put after it.")] = "https://app.scalyr.com"
    server_host: Annotated[str, doc("`serverHost` of the session info; empty: this machine's name.")] = ""
    session_info: Annotated[dict[str, str], doc("Further fields of the session info.")] = {}
    time: Annotated[
        str, doc("JSON pointer to the event's time: RFC 3339 text or a count since 1970; absent: received.")
    ] = ""
    severity: Annotated[
        str, doc("JSON pointer to the severity: 0 to 6, or a name such as `warning`; absent: 3.")
    ] = ""
    thread: Annotated[str, doc("JSON pointer to the name of the event's thread; empty: none.")] = ""
    log_fields: Annotated[
        tuple[str, ...], doc("JSON pointers to fields that many events share; sent once per request.")
    ] = ()
    max_request_bytes: Annotated[
        int, msgspec.Meta(ge=1000, le=6_225_920), doc("Most bytes of a request before compression.")
    ] = 6_000_000
    compression: Annotated[Compression, doc("How request bodies are compressed.")] = "gzip"
    tls: Annotated[TlsOptions, doc("Certificates.")] = TlsOptions()


class _Reply(msgspec.Struct):
    status: str
    message: str = ""


_REPLY = json_decoder(_Reply)


class DataSetOutlet(HttpReceiverOutlet):
    """Sends events to DataSet."""

    Settings = DataSetOptions
    options: DataSetOptions

    def __init__(self, options: Any, settings: OutletSettings, *, clock: Clock | None = None) -> None:
        super().__init__(options, settings, headers={}, clock=clock)
        self._url += "/api/addEvents"
        self._host = self.options.server_host or socket.gethostname()
        self._time = parse_pointer(self.options.time) if self.options.time else None
        self._severity = parse_pointer(self.options.severity) if self.options.severity else None
        self._thread = parse_pointer(self.options.thread) if self.options.thread else None
        self._log_keys = Keys(self.options.log_fields)
        self._taken = Keys((*settings.group_by, *self.options.log_fields))
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    @property
    def max_request_bytes(self) -> int | None:
        return self.options.max_request_bytes

    async def send(self, batch: Batch) -> Results:
        answer = await self._http.post(self._url, self.payload(batch))
        self.check(answer, self._url)
        self._read(answer, bare_url(self._url))
        return [DELIVERED] * len(batch.events)

    def _read(self, answer: HttpAnswer, where: str) -> None:
        """Raise unless the body reports success too; a 200 alone does not mean it."""
        try:
            reply = _REPLY.decode(answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise OutletUnavailable(f"{where} answered something unreadable: {excerpt(answer)}") from None
        if reply.status.startswith("success"):
            return
        text = f"{where} answered {reply.status}: {reply.message}"
        if reply.status.startswith("error/client") and not reply.status.startswith(RETRYABLE_ANSWERS):
            raise EventRefused(text)
        raise OutletUnavailable(text)

    # --- the request's bytes

    def payload(self, batch: Batch) -> bytes:
        """The request body, before compression."""
        threads = [part for name, part in batch.shared.items() if name.startswith("thread:")]
        logs = [part for name, part in batch.shared.items() if name.startswith("log:")]
        return b'%b"events":[%b],"threads":[%b],"logs":[%b]}' % (
            self._head(batch.session, batch.key),
            b",".join(batch.pieces),
            b",".join(threads),
            b",".join(logs),
        )

    def _head(self, session: str, key: Key) -> bytes:
        info: dict[str, Any] = {"serverHost": self._host, **self.options.session_info}
        _flatten(info, {name.replace("/", "."): value for name, value in key.info.items()})
        head = {"token": self.options.api_key, "session": session, "sessionInfo": info}
        return orjson.dumps(head)[:-1] + b","

    def envelope_bytes(self, session: str, key: Key) -> int:
        return len(self._head(session, key)) + len('"events":[],"threads":[],"logs":[]}')

    def prepare(self, event: Event, key: Key) -> bytes:
        body = self._parse(event.body)
        made: dict[str, Any] = {"ts": str(self._nanoseconds(event, body)), "sev": self._grade(body)}
        if (thread := self._thread_name(body)) is not None:
            made["thread"] = _short(thread)
        if self._log_keys.is_grouped:
            made["log"] = self._log_keys.of(event.body).id
        attrs: dict[str, Any] = {}
        _flatten(attrs, self._taken.strip(body) if self._taken.is_grouped else body)
        made["attrs"] = attrs
        self._last = (b"", {})  # `strip` has changed it
        return fitted(orjson.dumps(made))

    def shared(self, event: Event, key: Key) -> Mapping[str, bytes]:
        shared: dict[str, bytes] = {}
        if self._thread is None and not self._log_keys.is_grouped:
            return shared
        if (thread := self._thread_name(self._parse(event.body))) is not None:
            id = _short(thread)
            shared[f"thread:{id}"] = fitted(orjson.dumps({"id": id, "name": thread}))
        if self._log_keys.is_grouped:
            log = self._log_keys.of(event.body)
            attrs: dict[str, Any] = {}
            _flatten(attrs, {name.replace("/", "."): value for name, value in log.info.items()})
            shared[f"log:{log.id}"] = fitted(orjson.dumps({"id": log.id, "attrs": attrs}))
        return shared

    def trim(self, piece: bytes, limit_bytes: int) -> bytes:
        return trim_json(piece, limit_bytes, under="attrs")

    # --- the event's fields

    def _parse(self, body: bytes) -> dict[str, Any]:
        if self._last[0] is body:
            return self._last[1]
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise EventRefused(f"DataSet takes objects, and this is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise EventRefused(f"DataSet takes objects, not {type(parsed).__name__}")
        self._last = (body, parsed)
        return parsed

    def _nanoseconds(self, event: Event, body: dict[str, Any]) -> int:
        value = find(body, self._time) if self._time else None
        if isinstance(value, str) and (found := _parse_time(value)) is not None:
            return found
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e19:
            for unit in (_NS, 1_000_000, 1_000, 1):  # seconds, ms, µs, ns: distinguished by their size
                if value * unit < 1e19 / 2 and value * unit > 1e17:
                    return int(value * unit)
        return int(event.received_at * _NS)

    def _grade(self, body: dict[str, Any]) -> int:
        value = find(body, self._severity) if self._severity else None
        if isinstance(value, int) and not isinstance(value, bool):
            return min(6, max(0, value))
        if isinstance(value, str):
            return SEVERITIES.get(value.lower(), DEFAULT_SEVERITY)
        return DEFAULT_SEVERITY

    def _thread_name(self, body: dict[str, Any]) -> str | None:
        value = find(body, self._thread) if self._thread else ABSENT
        if value is ABSENT or value is None:
            return None
        return value if isinstance(value, str) else orjson.dumps(value).decode()


def _short(name: str) -> str:
    """A short id for a thread, whatever it is called."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _flatten(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Nested objects as dotted names, lists as JSON text: attributes are flat."""
    stack: list[tuple[str, Any]] = list(reversed(values.items()))
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict) and value:
            stack += [(f"{name}.{inner}", item) for inner, item in reversed(value.items())]
        elif isinstance(value, dict | list):
            into[name] = orjson.dumps(value).decode()
        else:
            into[name] = value


_FRACTION = re.compile(r"\.(\d+)")


def _parse_time(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time, to the last digit that it has; without an offset: UTC."""
    fraction = _FRACTION.search(text)
    whole = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = int(moment.timestamp())
    return seconds * _NS + (int(fraction.group(1)[:9].ljust(9, "0")) if fraction else 0)
