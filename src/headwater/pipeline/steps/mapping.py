"""The mapping step: move, remove, cast and constant, applied to the field tree, never to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headwater.pipeline.steps.field_tree import (
    NO_TYPE,
    VALUES,
    Constant,
    Field,
    JsonTypes,
    Path,
    parse_pointer,
    pointer,
)
from headwater.settings import FieldSettings, MappingSettings

IMPLICIT = (
    FieldSettings(src="/_timestamp", action="cast", type="TIMESTAMP"),
    FieldSettings(src="/eventn_ctx/utc_time", action="cast", type="TIMESTAMP"),
)
"""Casts that are merged into every mapping; a configured line for the same path has priority."""

ALWAYS_KEPT = (("_timestamp",), ("eventn_ctx", "event_id"), ("event_id",))
"""Fields that stay even where unmapped fields are dropped: they identify the event and its time."""


@dataclass
class MappedField:
    """A path of the mapped event that becomes a column.

    Where several fields fill it, the first that has a value in an event is stored.
    """

    path: Path
    fields: list[Field]
    type: str = ""
    column_type: str = ""
    is_text: bool = False
    """Objects are kept whole, as JSON text."""


@dataclass
class _Target:
    """A path of the mapped event, with the fields that fill it, in the order of their priority."""

    fields: list[Field] = field(default_factory=list)
    children: dict[str, _Target] = field(default_factory=dict)
    type: str = ""
    column_type: str = ""

    def at(self, path: Iterable[str]) -> _Target:
        target = self
        for part in path:
            target = target.children.setdefault(part, _Target())
        return target

    def merge_over(self, subtree: Field) -> None:
        """Adds a subtree; its values have priority over those that are there."""
        self.fields.insert(0, subtree)
        for name, child in subtree.children.items():
            self.children.setdefault(name, _Target()).merge_over(child)


def map_fields(root: Field, mapping: MappingSettings, *, keep: Iterable[Path] = ()) -> list[MappedField]:
    """The fields of the mapped event that become columns, in their order.

    Removals come first: a removed field is not moved along with its parent either. Moves all read the event
    as it was, so one source may feed two places and no move sees the result of another; a moved value
    replaces a value at its place, event by event. `keep` are paths that stay although nothing maps them.
    """
    source = _copy(root)
    lines = mapping.fields
    for line in lines:
        if line.action == "remove":
            _remove_path(source, parse_pointer(line.src))
    casts = [line for line in lines if line.action == "cast"]
    cast_paths = [parse_pointer(line.src or line.dst) for line in casts]
    configured = {*cast_paths, *(parse_pointer(line.src) for line in lines if line.action == "move")}
    casts += [line for line in IMPLICIT if parse_pointer(line.src) not in configured]
    unplaced = []
    for line in casts:
        found = source.find(parse_pointer(line.src)) if line.src else None
        if found is None:
            unplaced.append(line)
        else:
            found.type, found.column_type = line.type, line.column_type

    sources = [(line, source.find(parse_pointer(line.src))) for line in lines if line.action == "move"]
    moved = [(line, _copy(found)) for line, found in sources if found is not None]
    paths = [*cast_paths, *ALWAYS_KEPT, *keep]
    rest = source if mapping.keep_unmapped else _select_paths(source, paths)
    for line, _ in moved:
        _remove_path(rest, parse_pointer(line.src))

    target = _Target()
    target.merge_over(rest)
    # reversed: the first line for a place has priority
    for line, subtree in reversed(moved):
        if line.type or line.column_type:
            subtree.type, subtree.column_type = line.type, line.column_type
        target.at(parse_pointer(line.dst)).merge_over(subtree)
    for line in reversed(lines):
        if line.action == "constant":
            constant = _constant(line.value)
            constant.type, constant.column_type = line.type, line.column_type
            target.at(parse_pointer(line.dst)).merge_over(constant)
    for line in unplaced:
        _set_type(target, parse_pointer(line.dst or line.src), line)
    return list(_mapped_fields(target, ()))


def problems(mapping: MappingSettings) -> Iterator[str]:
    """The mistakes of a mapping, a line each, for `headwater check`."""
    places: dict[Path, int] = {}
    for number, line in enumerate(mapping.fields):
        name = f"fields[{number}]"
        needed = {"move": ("src", "dst"), "remove": ("src",), "constant": ("dst",), "cast": ("type",)}
        for key in needed[line.action]:
            if not getattr(line, key):
                yield f"`{name}`: `{line.action}` needs `{key}`"
        if line.action == "cast" and not (line.src or line.dst):
            yield f"`{name}`: `cast` needs `src`"
        if line.action == "constant" and line.value is None:
            yield f"`{name}`: `constant` needs `value`"
        if line.action in ("move", "constant") and line.dst:
            path = parse_pointer(line.dst)
            if path in places and path:
                yield f"`{name}`: `{pointer(path)}` is the place of `fields[{places[path]}]` already"
            places.setdefault(path, number)


def _mapped_fields(target: _Target, path: Path) -> Iterator[MappedField]:
    typed = (
        target
        if target.type or target.column_type
        else next((each for each in target.fields if each.type or each.column_type), None)
    )
    type, column_type = (typed.type, typed.column_type) if typed else ("", "")
    has_object = any(JsonTypes.OBJECT in each.json_types for each in target.fields)
    is_text = bool(typed) and has_object
    candidates = [each for own in target.fields for each in (own, *own.fallbacks)]
    fields = [
        each
        for each in candidates
        if each.json_types & VALUES or (is_text and JsonTypes.OBJECT in each.json_types)
    ]
    if fields and path:
        yield MappedField(path, fields, type, column_type, is_text)
    if not is_text:
        for name, child in target.children.items():
            yield from _mapped_fields(child, (*path, name))


def _set_type(target: _Target, path: Path, line: FieldSettings) -> None:
    for part in path:
        found = target.children.get(part)
        if found is None:
            return
        target = found
    target.type, target.column_type = line.type, line.column_type


def _copy(subtree: Field) -> Field:
    return replace(subtree, children={name: _copy(child) for name, child in subtree.children.items()})


def _remove_path(root: Field, path: Path) -> None:
    if not path:
        root.children.clear()
        return
    parent = root.find(path[:-1])
    if parent is not None:
        parent.children.pop(path[-1], None)


def _select_paths(root: Field, paths: Iterable[Path]) -> Field:
    """The tree with these paths alone."""
    selected = replace(root, children={})
    for path in paths:
        found = root.find(path)
        if found is None or not path:
            continue
        at, original = selected, root
        for part in path[:-1]:
            original = original.children[part]
            at = at.children.setdefault(part, replace(original, json_types=JsonTypes.OBJECT, children={}))
        at.children[path[-1]] = _copy(found)
    return selected


def _constant(value: Any) -> Field:
    if isinstance(value, bool):
        return Field(Constant(str(value).lower()), JsonTypes.BOOL)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            return Field(Constant(str(value)), JsonTypes.TOO_LARGE)
        is_large = abs(value) > 2**53
        return Field(Constant(str(value)), JsonTypes.INT64 | (JsonTypes.LARGE_INT64 if is_large else NO_TYPE))
    if isinstance(value, float):
        return Field(Constant(repr(value)), JsonTypes.FLOAT64)
    if isinstance(value, str):
        return Field(Constant(value), JsonTypes.STRING)
    return Field(Constant(msgspec.json.encode(value).decode()), JsonTypes.ARRAY)
