"""Buffers: events gathered for one request, measured on the bytes that will really be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import Batch, Outlet
from headwater.errors import EventRefused
from headwater.events import Event, fitted

__all__ = ["TRIMMED_FIELD", "Buffer", "trim_json"]

TRIMMED_FIELD = "_trimmed"

_POINTER_CHARACTERS = 80  # of a cut value's place in the record; names can be as long as values
_RECORDED_CUTS = 20  # values named in the record; further ones are only counted


class Buffer:
    """An open batch of one session.

    Holds at least one event, however large, unless the receiver has a hard limit. The limit counts the
    envelope, the pieces and what separates them, before compression.
    """

    def __init__(self, outlet: Outlet, session: str, key: Key) -> None:
        settings = outlet.settings
        self._outlet = outlet
        self._hard = outlet.max_request_bytes
        self._limit = min(settings.max_batch_bytes, self._hard or settings.max_batch_bytes)
        self._max_events = min(settings.max_batch_events, outlet.max_events or settings.max_batch_events)
        self._envelope = outlet.envelope_bytes(session, key)
        self._separator = outlet.separator_bytes
        self.bytes = self._envelope
        self.batch = Batch(session, key, [], [], {})

    def __len__(self) -> int:
        return len(self.batch.events)

    def add(self, event: Event) -> bool:
        """Take the event, or say False: it does not fit, this buffer is to be sent first.

        Raises EventRefused where it fits no request at all, even trimmed.
        """
        if len(self.batch.events) >= self._max_events:
            return False
        batch = self.batch
        shared = self._outlet.shared(event, batch.key)
        piece = self._outlet.prepare(event, batch.key)
        new = {name: part for name, part in shared.items() if name not in batch.shared}
        beside = sum(len(part) + 1 for part in new.values()) + self._separator
        if self.bytes + beside + len(piece) > self._limit:
            if batch.events:
                return False
            if self._hard is not None and self.bytes + beside + len(piece) > self._hard:
                piece = self._trimmed(piece, self._hard - self._envelope - beside)
        batch.events.append(event)
        batch.pieces.append(piece)
        batch.shared.update(new)
        self.bytes += beside + len(piece)
        return True

    def _trimmed(self, piece: bytes, limit: int) -> bytes:
        if limit < 0:
            raise EventRefused(
                f"what goes around the event is alone larger than the receiver's {self._hard} bytes"
            )
        trimmed = self._outlet.trim(piece, limit)
        if len(trimmed) > limit:
            raise EventRefused(
                f"{len(piece)} bytes, trimmed {len(trimmed)}; the receiver's limit leaves {limit}"
            )
        return trimmed


def trim_json(piece: bytes, limit_bytes: int, *, under: str = "") -> bytes:
    """Cut the string values of a JSON object, longest first, until it fits; never inside a character.

    What was cut, and how long it was, is recorded in the object's field `_trimmed`. With `under`, only
    values inside that top-level field are cut, and the record is kept there. Raises EventRefused when the
    rest is still too large.
    """
    try:
        root = orjson.loads(piece)
    except orjson.JSONDecodeError:
        root = None
    home = root.get(under) if under and isinstance(root, dict) else root
    if not isinstance(home, dict):
        raise EventRefused(
            f"{len(piece)} bytes are over the receiver's limit, and it is no object to be trimmed"
        )
    compact = len(orjson.dumps(root))
    if compact <= limit_bytes:  # white space alone was too much
        return fitted(orjson.dumps(root))
    places = sorted(_strings(home, ""), key=lambda place: place[0], reverse=True)
    cuts: list[str] = []
    excess = compact - limit_bytes
    record_bytes = len(f',"{TRIMMED_FIELD}":""')
    for length, pointer, parent, name in places:
        note = _note(pointer, length)
        if len(cuts) < _RECORDED_CUTS:
            record_bytes += len(orjson.dumps(note))
        elif len(cuts) == _RECORDED_CUTS:
            record_bytes += len("; and 12345678 more")
        parent[name], saved = _cut(parent[name], length - excess - record_bytes)
        cuts.append(note)
        excess -= saved
        if excess + record_bytes <= 0:
            break
    more = len(cuts) - _RECORDED_CUTS
    home[TRIMMED_FIELD] = "; ".join(cuts[:_RECORDED_CUTS]) + (f"; and {more} more" if more > 0 else "")
    result = orjson.dumps(root)
    if len(result) > limit_bytes:
        raise EventRefused(
            f"{len(piece)} bytes, {len(result)} with all text cut; the receiver's limit leaves {limit_bytes}"
        )
    return fitted(result)


def _note(pointer: str, length: int) -> str:
    if len(pointer) > _POINTER_CHARACTERS:
        pointer = pointer[:_POINTER_CHARACTERS] + "…"
    return f"{pointer}: {length} bytes"


def _strings(value: Any, pointer: str) -> Iterator[tuple[int, str, Any, Any]]:
    """Each string below: its bytes in JSON, its place, and the container and name to replace it by."""
    stack: list[tuple[Any, str]] = [(value, pointer)]
    while stack:
        container, path = stack.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for name, item in items:
            place = f"{path}/{name}"
            if isinstance(item, str):
                yield len(orjson.dumps(item)) - 2, place, container, name
            elif isinstance(item, dict | list):
                stack.append((item, place))


def _cut(text: str, keep_bytes: int) -> tuple[str, int]:
    """The longest start of `text` whose JSON form has at most `keep_bytes`, and how many bytes that saves."""
    written = orjson.dumps(text)[1:-1]
    end = max(0, min(keep_bytes, len(written)))
    while True:
        # a cut inside an escape sequence or a UTF-8 character does not parse; the next sound place is near
        try:
            return orjson.loads(b'"%b"' % written[:end]), len(written) - end
        except orjson.JSONDecodeError:
            end -= 1
