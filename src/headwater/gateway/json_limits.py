"""Intake: from the body of a request to events, each with the bytes as they came.

Nothing from outside is trusted (G12): sizes before and after decompression, nesting and keys are limited, and
whatever is wrong with a body is the sender's 4xx, never our 5xx.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import orjson
import zstandard

from headwater.http.request import Request
from headwater.http.response import Problem
from headwater.settings import GatewaySettings

__all__ = ["Intake", "Item", "NotJson", "is_json"]

ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what every zstd decoder should support; larger ones cost memory
GZIP = 31  # zlib's window size with the gzip container
STEP_BYTES = 64 * 1024
MIN_BYTES_PER_KEY = 4  # `"":0`
MIN_BYTES_PER_COMMA = 8  # denser arrays are not events: `[0,0,0,…]` would cost 30 times its size to split


class NotJson(Problem):
    """The body cannot be read as JSON. It is kept by the failed-event handler, as it came."""


class Item(NamedTuple):
    """One event of a batch: its bytes, and either what they say or what is wrong with them."""

    body: bytes
    event: Any
    problem: Problem | None


class Intake:
    """Reads bodies within the limits of the settings."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._limits = settings
        self._split = msgspec.json.Decoder(list[msgspec.Raw])
        self._zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)

    def body(self, request: Request) -> bytes:
        """The decoded body; 415 for a type or coding that is not understood, 413 when it grows too large."""
        content_type = request.headers.get("content-type")
        if content_type is not None and not is_json(content_type):
            raise Problem(
                415,
                "unsupported_media_type",
                "The Content-Type is not JSON in UTF-8.",
                hint="Send `Content-Type: application/json`.",
            )
        return self.decoded(request)

    def decoded(self, request: Request) -> bytes:
        """The body without its coding, whatever its type."""
        coding = request.headers.get("content-encoding")
        if coding is None:
            return request.body
        body = self._decompressed(request.body, coding.strip().lower())
        request.hold(len(body))
        return body

    def one(self, body: bytes) -> Any:
        """The single event that a body holds, parsed."""
        limits = self._limits
        if len(body) > limits.max_event_bytes:
            raise Problem(
                413,
                "event_too_large",
                f"The event has {len(body)} bytes; `gateway.max_event_bytes` is {limits.max_event_bytes}.",
                hint="Leave out large facets, or raise the setting.",
            )
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._unreadable(body, error) from None
        # Upper bounds that cost a microsecond or two; only what exceeds them is walked.
        if body.count(b"{") + body.count(b"[") > limits.max_depth or (
            len(body) > limits.max_keys * MIN_BYTES_PER_KEY and body.count(b":") > limits.max_keys
        ):
            self._measure(event)
        return event

    def many(self, body: bytes) -> list[Item]:
        """The events of a JSON array. One that is wrong carries its problem and spoils no other (G6)."""
        limits = self._limits
        if (commas := body.count(b",")) > limits.max_batch_events and len(
            body
        ) < commas * MIN_BYTES_PER_COMMA:
            raise self.too_many()
        try:
            parts = self._split.decode(body)
        except msgspec.ValidationError:
            raise NotJson(
                400,
                "not_an_array",
                "The body of a batch must be a JSON array of events.",
                hint="Send a single event to /api/v1/lineage.",
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(body, error) from None
        if len(parts) > limits.max_batch_events:
            raise self.too_many()
        return [self.item(bytes(part)) for part in parts]

    def item(self, body: bytes) -> Item:
        """One event of several; what is wrong with it is in it."""
        try:
            return Item(body, self.one(body), None)
        except Problem as problem:
            return Item(body, None, problem)

    def too_many(self) -> Problem:
        """What a batch is told that has more events than allowed."""
        return Problem(
            413,
            "too_many_events",
            f"The batch has more than {self._limits.max_batch_events} events (`gateway.max_batch_events`).",
            hint="Send several smaller batches.",
        )

    def _unreadable(self, body: bytes, error: Exception) -> Problem:
        """Why it is not JSON, with the place where reading stopped."""
        if isinstance(error, RecursionError) or _is_about_depth(error):
            return self._too_deep()
        try:
            body.decode()
        except UnicodeDecodeError as broken:
            return NotJson(
                400,
                "bad_utf8",
                f"The body is not UTF-8: byte {broken.start} cannot be decoded.",
                hint="JSON is sent as UTF-8.",
            )
        try:
            orjson.loads(body)  # says line and column, which msgspec does not
            where = "It cannot be split into events"
        except orjson.JSONDecodeError as told:
            if _is_about_depth(told):
                return self._too_deep()
            where = f"Line {told.lineno}, column {told.colno}: {told.msg}"
        return NotJson(
            400, "bad_json", f"The body is not JSON. {where}.", hint="Look at what the producer sends."
        )

    def _too_deep(self) -> Problem:
        return Problem(
            400,
            "too_deep",
            f"The event is nested deeper than {self._limits.max_depth} (`gateway.max_depth`).",
            hint="Flatten it, or raise the setting.",
        )

    def _measure(self, event: Any) -> None:
        """Level by level, so that a deep event cannot exhaust our own stack."""
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
                    hint="Leave out large facets, or raise the setting.",
                )
            level = [child for each in level for child in (each.values() if type(each) is dict else each)]

    def _decompressed(self, body: bytes, coding: str) -> bytes:
        if coding in ("identity", ""):
            return body
        try:
            if coding in ("gzip", "x-gzip"):
                return self._gunzip(body)
            if coding == "zstd":
                return self._unzstd(body)
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise Problem(
                400,
                "bad_encoding",
                f"The body is not {coding}, or it is cut off: {str(error)[:200]}",
                hint="Compress the whole body once, or send it without Content-Encoding.",
            ) from None
        raise Problem(
            415,
            "unsupported_encoding",
            "The Content-Encoding is not understood.",
            hint="Use gzip, zstd, or none.",
            headers={"Accept-Encoding": "gzip, zstd, identity"},
        )

    def _gunzip(self, body: bytes) -> bytes:
        limit = self._limits.max_body_bytes
        parts: list[bytes] = []
        size = 0
        while body:  # a gzip file may consist of several members
            member = zlib.decompressobj(GZIP)
            parts.append(member.decompress(body, limit + 1 - size))
            size += len(parts[-1])
            if size > limit:
                raise self._bomb()
            if not member.eof:
                raise EOFError("the end is missing")
            body = member.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unzstd(self, body: bytes) -> bytes:
        # Twice: the reader is bounded but misses a missing end, the other notices it but is not bounded.
        size = 0
        with self._zstd.stream_reader(body, read_across_frames=True) as reader:
            while step := reader.read(STEP_BYTES):
                size += len(step)
                if size > self._limits.max_body_bytes:
                    raise self._bomb()
        parts: list[bytes] = []
        while body:
            frame = self._zstd.decompressobj()
            parts.append(frame.decompress(body))
            if not frame.eof:
                raise EOFError("the end is missing")
            body = frame.unused_data
        return b"".join(parts)

    def _bomb(self) -> Problem:
        return Problem(
            413,
            "body_too_large",
            f"Decompressed, the body exceeds {self._limits.max_body_bytes} bytes (`gateway.max_body_bytes`).",
            hint="Send fewer events in one request.",
        )


def _is_about_depth(error: Exception) -> bool:
    # orjson stops at 1,024 levels whatever our own limit is; releases differ in how they say it
    return "depth limit" in str(error) or "ecursion" in str(error)


@lru_cache(256)
def is_json(content_type: str) -> bool:
    """Whether a Content-Type says JSON in UTF-8."""
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return False
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
            return False
    return True
