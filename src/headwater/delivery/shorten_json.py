"""Cuts long strings of a JSON object until it fits a receiver's limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from headwater.errors import EventRefused
from headwater.events import fitted

TRIMMED_FIELD = "_trimmed"

_POINTER_CHARACTERS = 80  # of a cut value's place in the record; names can be as long as values
_RECORDED_CUTS = 20  # values named in the record; further ones are only counted


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
            f"{len(piece)} bytes are over the receiver's limit, and only an object can be trimmed"
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
    """Each string below: its bytes in JSON, its pointer, and the container and key that hold it."""
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
