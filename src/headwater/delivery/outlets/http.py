"""The `http` outlet: any receiver that takes JSON over HTTP, with the request's body as a template.

Placeholders, in `event` (written for each event): `$event` the event, `$position`, `$received_at` (seconds
since 1970), `$time` (the same as RFC 3339 text, without quotes). In `body` (once per request): `$events` the
written events with `separator` between them, `$count`, `$session`, `$info` (a JSON object of the fields of
`group_by`). `$$` is a dollar sign. So NDJSON is `body: "$events\\n"`, `separator: "\\n"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import orjson

from headwater.clock import Clock
from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import DELIVERED, Batch, Results
from headwater.delivery.outlets.http_client import (
    RETRYABLE_STATUSES,
    Compression,
    HttpReceiverOutlet,
    TlsOptions,
    bearer,
)
from headwater.errors import SettingsError
from headwater.events import Event
from headwater.settings import OutletSettings, doc


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The receiver's address, and the form of requests to it."""

    removed: ClassVar[Mapping[str, str]] = {
        "refuse_statuses": "a receiver must answer 400 or 422 to a bad event",
    }
    url: Annotated[str, doc("The full URL of the requests.")]
    method: Annotated[Literal["POST", "PUT", "PATCH"], doc("Their method.")] = "POST"
    event: Annotated[str, doc("Template of each event.")] = "$event"
    separator: Annotated[str, doc("What stands between events.")] = ","
    body: Annotated[str, doc("Template of the request's body.")] = "[$events]"
    content_type: Annotated[str, doc("Its Content-Type.")] = "application/json"
    api_key: Annotated[str, doc("Sent as `Authorization: Bearer`; write it as `${env.NAME}`.")] = ""
    headers: Annotated[dict[str, str], doc("Further headers of each request.")] = {}
    retry_statuses: Annotated[
        tuple[int, ...], doc("4xx statuses that say nothing against the event, besides the usual ones.")
    ] = ()
    max_request_bytes: Annotated[
        int, msgspec.Meta(ge=0), doc("The receiver's hard limit before compression: trim to it; 0: none.")
    ] = 0
    compression: Annotated[Compression, doc("How request bodies are compressed.")] = "none"
    tls: Annotated[TlsOptions, doc("Certificates.")] = TlsOptions()


class Template:
    """Bytes with `$name` placeholders, of which only the known ones may occur."""

    _PLACE = re.compile(r"\$(\$|[a-z_]+)")

    def __init__(self, text: str, known: frozenset[str], *, needs: str, setting: str, source: str) -> None:
        self._parts: list[bytes | str] = []  # bytes as they are, names to be filled in
        end = 0
        for place in self._PLACE.finditer(text):
            self._parts.append(text[end : place.start()].encode())
            name = place.group(1)
            if name != "$" and name not in known:
                names = ", ".join(f"${each}" for each in sorted(known))
                raise SettingsError(
                    [f"`{setting}` has the unknown placeholder `${name}`; known are {names}"], source=source
                )
            self._parts.append(b"$" if name == "$" else name)
            end = place.end()
        self._parts.append(text[end:].encode())
        if needs not in self._parts:
            raise SettingsError([f"`{setting}` lacks `${needs}`: nothing would be sent"], source=source)

    def fill(self, values: Mapping[str, bytes]) -> bytes:
        return b"".join(part if isinstance(part, bytes) else values[part] for part in self._parts)


class HttpOutlet(HttpReceiverOutlet):
    """Sends events to any HTTP receiver. Its answer counts for the whole batch."""

    Settings = HttpOptions
    options: HttpOptions

    def __init__(self, options: Any, settings: OutletSettings, *, clock: Clock | None = None) -> None:
        headers = {"content-type": options.content_type} | bearer(options.api_key, options.headers)
        super().__init__(options, settings, headers=headers, clock=clock)
        self._url = self.options.url  # in full, with a slash at its end
        source = f"outlet {settings.name}"
        self._event = Template(
            self.options.event,
            frozenset({"event", "position", "received_at", "time"}),
            needs="event",
            setting="event",
            source=source,
        )
        self._body = Template(
            self.options.body,
            frozenset({"events", "count", "session", "info"}),
            needs="events",
            setting="body",
            source=source,
        )
        self._is_plain = self.options.event == "$event"
        self._separator = self.options.separator.encode()
        self._retryable = RETRYABLE_STATUSES | set(self.options.retry_statuses)

    @property
    def max_request_bytes(self) -> int | None:
        return self.options.max_request_bytes or None

    @property
    def separator_bytes(self) -> int:
        return len(self._separator)

    async def send(self, batch: Batch) -> Results:
        answer = await self._http.post(self._url, self.payload(batch), method=self.options.method)
        self.check(answer, self._url, self._retryable)
        return [DELIVERED] * len(batch.events)

    def payload(self, batch: Batch) -> bytes:
        """The request body, before compression."""
        values = self._about(batch.session, batch.key, len(batch.events))
        return self._body.fill(values | {"events": self._separator.join(batch.pieces)})

    def envelope_bytes(self, session: str, key: Key) -> int:
        # `$events` may stand in the template more than once, which no sensible template does
        longest = self._about(session, key, 10**9)
        return len(self._body.fill(longest | {"events": b""}))

    def _about(self, session: str, key: Key, count: int) -> dict[str, bytes]:
        return {"session": session.encode(), "info": orjson.dumps(key.info), "count": b"%d" % count}

    def prepare(self, event: Event, key: Key) -> bytes:
        if self._is_plain:
            return event.body
        return self._event.fill(
            {
                "event": event.body,
                "position": b"%d" % event.position,
                "received_at": repr(event.received_at).encode(),
                "time": datetime.fromtimestamp(event.received_at, UTC).isoformat().encode(),
            }
        )
