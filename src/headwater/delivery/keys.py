"""The key of an event: which session it belongs to.

`group_by` is a list of JSON pointers. Events with equal values at all of them share a key, hence a session,
hence their order (G2). Without `group_by` there is one key for everything: total order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from headwater.errors import SettingsError
from headwater.events import fitted

ABSENT = object()  # absent, null and "" are three different keys
KNOWN_KEYS = 10_000  # most keys repeat: made once, they cost neither time nor memory the next time


class Key(msgspec.Struct, frozen=True):
    """One key. `id` is short and safe in names and headers; `info` holds the values by their field's name."""

    id: str
    text: str
    info: dict[str, Any]


ONLY_KEY = Key("all", "", {})


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON pointer (RFC 6901); raises SettingsError if the text is not one."""
    if not pointer.startswith("/") or len(pointer) < 2:
        raise SettingsError(
            [f"`{pointer}` is not a JSON pointer; write `run` as `/run`, a nested field as `/run/runId`"],
            source="group_by",
        )
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def find(value: Any, path: tuple[str, ...]) -> Any:
    """The value at the path, or ABSENT."""
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


def remove(value: Any, path: tuple[str, ...]) -> None:
    """Remove the field at the path, if it is there."""
    parent = find(value, path[:-1]) if len(path) > 1 else value
    if isinstance(parent, dict):
        parent.pop(path[-1], None)


class Keys:
    """Finds the keys of events by `group_by`."""

    def __init__(self, group_by: Sequence[str] = (), *, other_names: Mapping[str, str] | None = None) -> None:
        """`other_names` has the pointer of the field to take for one that an event lacks."""
        self._paths = [(pointer, parse_pointer(pointer)) for pointer in group_by]
        names = dict(other_names or {})
        self._others = [
            (number, parse_pointer(names[pointer]))
            for number, pointer in enumerate(group_by)
            if pointer in names
        ]
        self._known: dict[tuple[bytes, ...], Key] = {}

    @property
    def pointers(self) -> tuple[str, ...]:
        """The JSON pointers of the key's fields."""
        return tuple(pointer for pointer, _ in self._paths)

    @property
    def is_grouped(self) -> bool:
        """Whether there can be more than one key."""
        return bool(self._paths)

    def of(self, body: bytes) -> Key:
        """The event's key. A body that is not JSON has none of the fields, which is a key like any other."""
        if not self._paths:
            return ONLY_KEY
        try:
            event = orjson.loads(body)
        except orjson.JSONDecodeError:
            event = None
        values = [find(event, path) for _, path in self._paths]
        for number, path in self._others:
            if values[number] is ABSENT:
                values[number] = find(event, path)
        # absent differs from null: it has no canonical form at all
        canonical = tuple(
            b"" if value is ABSENT else orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in values
        )
        key = self._known.get(canonical)
        if key is None:
            if len(self._known) >= KNOWN_KEYS:
                self._known.clear()
            key = self._known[tuple(map(fitted, canonical))] = self._make(canonical, values)
        return key

    def _make(self, canonical: tuple[bytes, ...], values: list[Any]) -> Key:
        # each value is preceded by its length, so that no two lists of values run into the same bytes
        digest = hashlib.blake2b(b"".join(b"%d:%b" % (len(part), part) for part in canonical), digest_size=16)
        info = {
            pointer[1:]: value
            for (pointer, _), value in zip(self._paths, values, strict=True)
            if value is not ABSENT
        }
        selected = [None if value is ABSENT else value for value in values]
        alone = selected[0] if len(selected) == 1 else None
        text = (
            alone if isinstance(alone, str) else orjson.dumps(selected, option=orjson.OPT_SORT_KEYS).decode()
        )
        return Key(digest.hexdigest(), text, info)

    def strip(self, event: dict[str, Any]) -> dict[str, Any]:
        """The parsed event without the key's fields, for outlets that state them elsewhere; changes it."""
        for _, path in self._paths:
            remove(event, path)
        for _, path in self._others:
            remove(event, path)
        return event
