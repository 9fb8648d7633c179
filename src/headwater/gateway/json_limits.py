"""Parses JSON bodies within the limits of size, nesting, keys and events (G12).

The bytes of an event stay as they were sent. Each fault of a body is answered with a 4xx.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import orjson

from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.settings import GatewaySettings

MIN_BYTES_PER_KEY = 4  # `"":0`
MIN_BYTES_PER_COMMA = 8  # denser arrays are not events: `[0,0,0,…]` would cost 30 times its size to split


class UnreadableBody(Problem):
    """The body is not JSON. The failed-event handler keeps it as it was sent."""


class ParsedEvent(NamedTuple):
    """One event of several: its bytes, and either its value or its problem."""

    body: bytes
    event: Any
    problem: Problem | None


class JsonLimits:
    """Reads and parses bodies within the limits of the settings."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._limits = settings
        self._array = msgspec.json.Decoder(list[msgspec.Raw])

    def read_body(self, request: Request, other_types: tuple[str, ...] = ()) -> bytes:
        """Return the decompressed body; 415 if its type is neither JSON nor one of the others."""
        content_type = request.headers.get("content-type")
        if content_type is not None and not _is_supported(content_type, other_types):
            accepted = " or ".join(("application/json", *other_types))
            raise Problem(
                415,
                "unsupported_media_type",
                f"The Content-Type {content_type[:100]} is not accepted here.",
                hint=f"Send {accepted}, in UTF-8.",
            )
        return request.read_body()

    def parse_event(self, body: bytes) -> Any:
        """Return the value of one event."""
        limits = self._limits
        if len(body) > limits.max_event_bytes:
            raise Problem(
                413,
                "event_too_large",
                f"The event has {len(body)} bytes; `gateway.max_event_bytes` is {limits.max_event_bytes}.",
                hint="Leave out large facets, or raise `gateway.max_event_bytes`.",
            )
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._unreadable(body, error) from None
        # Upper bounds that cost a microsecond or two; only an event that exceeds them is walked.
        if body.count(b"{") + body.count(b"[") > limits.max_depth or (
            len(body) > limits.max_keys * MIN_BYTES_PER_KEY and body.count(b":") > limits.max_keys
        ):
            self._check_depth_and_keys(event)
        return event

    def split_batch(self, body: bytes) -> list[ParsedEvent]:
        """Return the events of a JSON array. A bad event has its problem, and does not affect others (G6)."""
        limits = self._limits
        commas = body.count(b",")
        if commas > limits.max_batch_events and len(body) < commas * MIN_BYTES_PER_COMMA:
            raise self.too_many_events()
        try:
            parts = self._array.decode(body)
        except msgspec.ValidationError:
            raise UnreadableBody(
                400,
                "not_an_array",
                "The body of a batch must be a JSON array of events.",
                hint="Send a single event to /api/v1/lineage.",
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(body, error) from None
        if len(parts) > limits.max_batch_events:
            raise self.too_many_events()
        return [self.parse_line(bytes(part)) for part in parts]

    def parse_line(self, body: bytes) -> ParsedEvent:
        """Return one event of several, with its problem if it has one."""
        try:
            return ParsedEvent(body, self.parse_event(body), None)
        except Problem as problem:
            return ParsedEvent(body, None, problem)

    def too_many_events(self) -> Problem:
        """Return the problem of a batch with too many events."""
        return Problem(
            413,
            "too_many_events",
            f"The batch has more than {self._limits.max_batch_events} events (`gateway.max_batch_events`).",
            hint="Send several smaller batches.",
        )

    def _unreadable(self, body: bytes, error: Exception) -> Problem:
        """Return why a body is not JSON, with the place where parsing stopped."""
        if isinstance(error, RecursionError) or _is_about_depth(error):
            return self._too_deep()
        try:
            body.decode()
        except UnicodeDecodeError as broken:
            return UnreadableBody(
                400,
                "bad_utf8",
                f"The body is not UTF-8: byte {broken.start} cannot be decoded.",
                hint="Encode JSON as UTF-8.",
            )
        try:
            orjson.loads(body)  # its error has line and column, msgspec's does not
            where = "It cannot be split into events"
        except orjson.JSONDecodeError as found:
            if _is_about_depth(found):
                return self._too_deep()
            where = f"Line {found.lineno}, column {found.colno}: {found.msg}"
        return UnreadableBody(
            400,
            "bad_json",
            f"The body is not JSON. {where}.",
            hint="Send one JSON value in UTF-8 as the body.",
        )

    def _too_deep(self) -> Problem:
        return Problem(
            400,
            "too_deep",
            f"The event is nested deeper than {self._limits.max_depth} (`gateway.max_depth`).",
            hint="Flatten the event, or raise `gateway.max_depth`.",
        )

    def _check_depth_and_keys(self, event: Any) -> None:
        """Walk an event level by level: recursion over a deep event would exhaust the stack."""
        level: list[Any] = [event]
        keys = depth = 0
        while True:
            level = [each for each in level if type(each) in (dict, list)]
            if not level:
                return
            depth += 1
            keys += sum(len(each) for each in level if type(each) is dict)
            if depth > self._limits.max_depth:
                raise self._too_deep()
            if keys > self._limits.max_keys:
                raise Problem(
                    400,
                    "too_many_keys",
                    f"The event has more than {self._limits.max_keys} keys (`gateway.max_keys`).",
                    hint="Leave out large facets, or raise `gateway.max_keys`.",
                )
            level = [child for each in level for child in (each.values() if type(each) is dict else each)]


def _is_about_depth(error: Exception) -> bool:
    # orjson stops at 1,024 levels regardless of our limit; its releases word the error differently
    return "depth limit" in str(error) or "ecursion" in str(error)


def _is_supported(content_type: str, other_types: tuple[str, ...]) -> bool:
    return _is_json(content_type) or content_type.partition(";")[0].strip().lower() in other_types


@lru_cache(256)
def _is_json(content_type: str) -> bool:
    """Return whether a Content-Type is JSON in UTF-8."""
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return False
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
            return False
    return True
