"""The `dataset` outlet: DataSet's addEvents API, with sessions, threads and logs.

A request, before compression:

    {"token": "…", "session": "<client>-<key>", "sessionInfo": {the key's fields, serverHost, …},
     "events":  [{"ts": "<ns>", "sev": 3, "thread": "…", "log": "…", "attrs": {"a.b": 1, …}}, …],
     "threads": [{"id": "…", "name": "…"}, …],
     "logs":    [{"id": "…", "attrs": {…}}, …]}

An event's nested objects become dotted attributes and its lists JSON text. The fields of `group_by` go into
`sessionInfo`, those of `log_fields` into `logs`, time, severity and thread into fields of the event; none is
repeated in the attributes, unless it says more than its place in the request can. `serverHost` and `logfile`
of an event always go into `sessionInfo`, since DataSet's lists of hosts and files are made of them: so they
are part of the session's key. `ts` is text, since a nanosecond count is larger than a JSON reader's safe
integers. The receiver takes one request at a time per session, may be unreachable for minutes, and takes
6 MB.

A status that contains `discardBuffer` says that the events will never be taken: they become rejects. The
Retry-After of a 429 is about the account, and pauses all sessions.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from headwater.clock import Clock
from headwater.delivery.event_time import event_nanoseconds
from headwater.delivery.keys import ABSENT, Key, Keys, find, parse_pointer, remove
from headwater.delivery.outlets.base import DELIVERED, Batch, Refused, Results
from headwater.delivery.outlets.http_client import (
    USER_AGENT,
    Compression,
    HttpReceiverOutlet,
    TlsOptions,
    bare_url,
    excerpt,
)
from headwater.delivery.shorten_json import trim_json
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event, fitted
from headwater.formats.json_decoder import json_decoder
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
MORE_THAN_A_GRADE = frozenset({"notice", "critical", "alert", "emergency"})
"""Names for which DataSet has no grade of their own: the attribute stays beside the nearest grade."""
DEFAULT_SEVERITY = 3
DISCARD = "discardBuffer"
SESSION_FIELDS = ("/logfile", "/serverHost")
OTHER_NAMES = {"/serverHost": "/__origServerHost"}
"""Where an event that has no `serverHost` may have it: the collector's name for a host that it replaced."""

Path = tuple[str, ...]


class DataSetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The address of DataSet, and the fields of an event that it treats specially."""

    api_key: Annotated[str, doc("Token with write access to logs; write it as `${env.NAME}`.")]
    url: Annotated[str, doc("Base URL; `/api/addEvents` is put after it.")] = "https://app.scalyr.com"
    server_host: Annotated[
        str, doc("`serverHost` of events that have none of their own; empty: this machine's name.")
    ] = ""
    session_info: Annotated[dict[str, str], doc("Further fields of the session info.")] = {}
    time: Annotated[
        str,
        doc(
            "JSON pointer to the event's time: ISO 8601 text, or seconds to nanoseconds since 1970, as a "
            "number or as digits; absent: received."
        ),
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
    user_agent_suffix: Annotated[
        str,
        msgspec.Meta(pattern=r"^[ -~]{0,200}\Z"),
        doc("Put after `headwater/<version>;` in the User-Agent, to distinguish installations."),
    ] = ""
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
    # DataSet knows no limit of events: small ones, too, fill its 6 MB.
    default_batch_events: ClassVar[int] = 100_000
    default_batch_bytes: ClassVar[int] = 6_000_000
    default_session_bytes: ClassVar[int] = 18_000_000  # one under way, one that is full, one that fills

    def __init__(self, options: Any, settings: OutletSettings, *, clock: Clock | None = None) -> None:
        suffix = options.user_agent_suffix
        headers = {"user-agent": f"{USER_AGENT};{suffix}"} if suffix else {}
        super().__init__(options, settings, headers=headers, clock=clock)
        self._url += "/api/addEvents"
        self._host = self.options.server_host or socket.gethostname()
        self._time = parse_pointer(self.options.time) if self.options.time else None
        self._severity = parse_pointer(self.options.severity) if self.options.severity else None
        self._thread = parse_pointer(self.options.thread) if self.options.thread else None
        self._log_keys = Keys(self.options.log_fields)
        self._taken = Keys((*self.keys().pointers, *self.options.log_fields), other_names=OTHER_NAMES)
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    @property
    def max_request_bytes(self) -> int | None:
        return self.options.max_request_bytes

    def keys(self) -> Keys:
        pointers = tuple(dict.fromkeys((*self.settings.group_by, *SESSION_FIELDS)))
        return Keys(pointers, other_names=OTHER_NAMES)

    async def send(self, batch: Batch) -> Results:
        answer = await self._http.post(self._url, self.payload(batch))
        where = bare_url(self._url)
        try:
            reply = _REPLY.decode(answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            reply = None
        if reply is not None and DISCARD in reply.status:
            return [Refused(f"{where} answered {reply.status}: {reply.message}")] * len(batch.events)
        self.check(answer, self._url, pausing_all=frozenset({429}))
        if reply is None:
            raise OutletUnavailable(f"{where} answered something unreadable: {excerpt(answer)}")
        _check_status(reply, where)
        return [DELIVERED] * len(batch.events)

    # --- the request's bytes

    def payload(self, batch: Batch) -> bytes:
        """The request body, before compression."""
        parts = [self._head(batch.session, batch.key), b'"events":[', b",".join(batch.pieces), b"]"]
        for name in ("threads", "logs"):
            if shared := [part for id, part in batch.shared.items() if id.startswith(name)]:
                parts += [b',"%b":[' % name.encode(), b",".join(shared), b"]"]
        return b"".join([*parts, b"}"])

    def _head(self, session: str, key: Key) -> bytes:
        info: dict[str, Any] = {"serverHost": self._host, **self.options.session_info}
        own = {name.replace("/", "."): value for name, value in key.info.items()}
        if own.get("serverHost") in (None, ""):
            own.pop("serverHost", None)
        _flatten(info, own)
        head = {"token": self.options.api_key, "session": session, "sessionInfo": info}
        return orjson.dumps(head)[:-1] + b","

    def envelope_bytes(self, session: str, key: Key) -> int:
        return len(self._head(session, key)) + len('"events":[],"threads":[],"logs":[]}')

    def prepare(self, event: Event, key: Key) -> bytes:
        body = self._parse(event.body)
        repeated: list[Path] = []
        time = event_nanoseconds(find(body, self._time)) if self._time else None
        if time is None:
            time = int(event.received_at * 1e9)
        elif self._time:
            repeated.append(self._time)
        grade, says_all = self._grade(body)
        if says_all and self._severity:
            repeated.append(self._severity)
        made: dict[str, Any] = {"ts": str(time), "sev": grade}
        if (thread := self._thread_name(body)) is not None and self._thread:
            made["thread"] = _short(thread)
            repeated.append(self._thread)
        if self._log_keys.is_grouped:
            made["log"] = self._log_keys.of(event.body).id
        body = self._taken.strip(body)
        for path in repeated:
            remove(body, path)
        attrs: dict[str, Any] = {}
        _flatten(attrs, body)
        made["attrs"] = attrs
        self._last = (b"", {})  # its fields were removed
        return fitted(orjson.dumps(made))

    def shared(self, event: Event, key: Key) -> Mapping[str, bytes]:
        shared: dict[str, bytes] = {}
        if self._thread is None and not self._log_keys.is_grouped:
            return shared
        if (thread := self._thread_name(self._parse(event.body))) is not None:
            id = _short(thread)
            shared[f"threads:{id}"] = fitted(orjson.dumps({"id": id, "name": thread}))
        if self._log_keys.is_grouped:
            log = self._log_keys.of(event.body)
            attrs: dict[str, Any] = {}
            _flatten(attrs, {name.replace("/", "."): value for name, value in log.info.items()})
            shared[f"logs:{log.id}"] = fitted(orjson.dumps({"id": log.id, "attrs": attrs}))
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

    def _grade(self, body: dict[str, Any]) -> tuple[int, bool]:
        """The event's grade, and whether it says all that the event's field does."""
        value = find(body, self._severity) if self._severity else None
        if isinstance(value, int) and not isinstance(value, bool):
            grade = min(6, max(0, value))
            return grade, grade == value
        if isinstance(value, str) and (name := value.lower()) in SEVERITIES:
            return SEVERITIES[name], name not in MORE_THAN_A_GRADE
        return DEFAULT_SEVERITY, False

    def _thread_name(self, body: dict[str, Any]) -> str | None:
        value = find(body, self._thread) if self._thread else ABSENT
        if value is ABSENT or value is None:
            return None
        return value if isinstance(value, str) else orjson.dumps(value).decode()


def _check_status(reply: _Reply, where: str) -> None:
    """Raise unless the body reports success too; a 200 alone does not mean it."""
    if reply.status.startswith("success"):
        return
    text = f"{where} answered {reply.status}: {reply.message}"
    if reply.status.startswith("error/client") and not reply.status.startswith(RETRYABLE_ANSWERS):
        raise EventRefused(text)
    raise OutletUnavailable(text)


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
