"""Parses JSON bodies within the limits of size, nesting, keys and events (G12).

The bytes of an event stay as they were sent. Each fault of a body is answered with a 4xx.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.settings import GatewaySettings
from headwater.text_cache import text_cache

MIN_BYTES_PER_KEY = 4  # `"":0`
MIN_BYTES_PER_COMMA = 8  # denser arrays are not events: `[0,0,0,…]` would cost 30 times its size to split
MIN_BYTES_PER_VALUE = 6  # denser events are not lineage: a parsed value takes 50 bytes and more
DENSE_BYTES = 1024 * 1024  # smaller events may be as dense as JSON can be
# An unfinished string ends with the body: otherwise each quote in it would begin another search.
_NO_DOUBLE = "infinity when parsed as double"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


class UnreadableBody(Problem):
    """The body is not JSON. The failed-event handler keeps it as it was sent."""


class ParsedEvent(NamedTuple):
    """One event of several: its bytes, and either its value or its problem."""

    body: bytes
    event: Any
    problem: Problem | None


class JsonLimits:
    """Reads and parses bodies within the limits of the settings.

    A lineage event may be as large as a body, with as many more keys: wide tables have much column lineage.
    """

    def __init__(self, settings: GatewaySettings, *, is_lineage: bool = False) -> None:
        self._limits = settings
        self._max_event_bytes = settings.max_body_bytes if is_lineage else settings.max_event_bytes
        self._max_keys = settings.max_keys * max(1, self._max_event_bytes // settings.max_event_bytes)
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
        if len(body) > self._max_event_bytes:
            raise Problem(
                413,
                "event_too_large",
                f"The event has {len(body)} bytes; `gateway.max_event_bytes` is {self._max_event_bytes}.",
                hint="Send smaller events, or raise `gateway.max_event_bytes`.",
            )
        if len(body) > DENSE_BYTES:
            self._check_density(body)
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._unreadable(body, error) from None
        # Upper bounds that cost a microsecond or two; only an event that exceeds them is walked.
        if body.count(b"{") + body.count(b"[") > limits.max_depth or (
            len(body) > self._max_keys * MIN_BYTES_PER_KEY and body.count(b":") > self._max_keys
        ):
            self._check_depth_and_keys(event)
        return event

    def split_batch(self, body: bytes) -> Sequence[msgspec.Raw]:
        """Return the bytes of each event of a JSON array, for `parse_part`."""
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
        return parts

    def parse_part(self, part: bytes | msgspec.Raw) -> ParsedEvent:
        """Return one event of several. A bad one has its problem, and does not affect others (G6)."""
        body = bytes(part)
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
            if _NO_DOUBLE in found.msg:
                return UnreadableBody(
                    400,
                    "number_too_large",
                    f"A number is too large for a double: line {found.lineno}, column {found.colno}.",
                    hint="Send it as a text.",
                )
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

    def _too_many_keys(self, found: str) -> Problem:
        return Problem(
            400,
            "too_many_keys",
            f"The event has {found} (`gateway.max_keys`).",
            hint="Leave out large facets, or raise `gateway.max_keys`.",
        )

    def _check_density(self, body: bytes) -> None:
        """Refuse an event that would take many times its size in memory, before it is parsed (G8)."""
        most = len(body) // MIN_BYTES_PER_VALUE
        if _values(body) <= most and body.count(b":") <= self._max_keys:
            return
        bare = _STRING.sub(b"", body)
        if bare.count(b":") > self._max_keys:
            raise self._too_many_keys(f"more than {self._max_keys} keys")
        if _values(bare) > most:
            raise self._too_many_keys(f"more than one value in {MIN_BYTES_PER_VALUE} bytes")

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
            if keys > self._max_keys:
                raise self._too_many_keys(f"more than {self._max_keys} keys")
            level = [child for each in level for child in (each.values() if type(each) is dict else each)]


def _values(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _is_about_depth(error: Exception) -> bool:
    # orjson stops at 1,024 levels regardless of our limit; its releases word the error differently
    return "depth limit" in str(error) or "ecursion" in str(error)


def _is_supported(content_type: str, other_types: tuple[str, ...]) -> bool:
    return _is_json(content_type) or content_type.partition(";")[0].strip().lower() in other_types


@text_cache(256)
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
