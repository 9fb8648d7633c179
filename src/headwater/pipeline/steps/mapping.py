"""The mapping step (seed 003): move, remove, cast, constant. Done on the tree of fields, once per batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headwater.pipeline.steps.batch_schema import VALUES, Constant, Leaf, Node, Seen
from headwater.pipeline.steps.names import parse_pointer, pointer
from headwater.settings import FieldSettings, MappingSettings

__all__ = ["IMPLICIT", "apply", "problems"]

IMPLICIT = (
    FieldSettings(src="/_timestamp", action="cast", type="TIMESTAMP"),
    FieldSettings(src="/eventn_ctx/utc_time", action="cast", type="TIMESTAMP"),
)
"""Casts that are merged into every mapping; a configured line for the same path has priority."""

ALWAYS_KEPT = (("_timestamp",), ("eventn_ctx", "event_id"), ("event_id",))
"""What stays even where unmapped fields are dropped: without it nobody could tell when and which."""


@dataclass
class _Target:
    """A path of the mapped event, with the nodes that feed it, the most entitled first."""

    nodes: list[Node] = field(default_factory=list)
    children: dict[str, _Target] = field(default_factory=dict)
    type: str = ""
    column_type: str = ""

    def at(self, path: Iterable[str]) -> _Target:
        target = self
        for part in path:
            target = target.children.setdefault(part, _Target())
        return target

    def lay_over(self, node: Node) -> None:
        """Add a subtree; where both have a value, it wins over what is there."""
        self.nodes.insert(0, node)
        for name, child in node.children.items():
            self.children.setdefault(name, _Target()).lay_over(child)


def apply(root: Node, mapping: MappingSettings, *, keep: Iterable[tuple[str, ...]] = ()) -> list[Leaf]:
    """The leaves of the mapped event, in the order of its fields.

    Removals come first: what was removed is not moved along with its parent either. Moves all read the event
    as it was, so one source may feed two places and no move sees another's result; a moved value takes the
    place of one that is there, event by event. `keep` are paths that stay although nothing maps them.
    """
    source = _copy(root)
    fields = mapping.fields
    for line in fields:
        if line.action == "remove":
            _cut(source, parse_pointer(line.src))
    casts = [line for line in fields if line.action == "cast"]
    configured = {parse_pointer(line.src or line.dst) for line in casts} | {
        parse_pointer(line.src) for line in fields if line.action == "move"
    }
    casts += [line for line in IMPLICIT if parse_pointer(line.src) not in configured]
    unplaced = []
    for line in casts:
        node = source.find(parse_pointer(line.src)) if line.src else None
        if node is None:
            unplaced.append(line)
        else:
            node.type, node.column_type = line.type, line.column_type

    moved = [(line, source.find(parse_pointer(line.src))) for line in fields if line.action == "move"]
    moved_nodes = [(line, _copy(node)) for line, node in moved if node is not None]
    rest = source if mapping.keep_unmapped else _only(source, [*_kept(fields), *ALWAYS_KEPT, *keep])
    for line, _ in moved_nodes:
        _cut(rest, parse_pointer(line.src))

    target = _Target()
    target.lay_over(rest)
    # the first line for a place has the last word
    for line, node in reversed(moved_nodes):
        if line.type or line.column_type:
            node.type, node.column_type = line.type, line.column_type
        target.at(parse_pointer(line.dst)).lay_over(node)
    for line in reversed(fields):
        if line.action == "constant":
            node = _constant(line.value)
            node.type, node.column_type = line.type, line.column_type
            target.at(parse_pointer(line.dst)).lay_over(node)
    for line in unplaced:
        _mark(target, parse_pointer(line.dst or line.src), line)
    return list(_leaves(target, ()))


def problems(mapping: MappingSettings) -> Iterator[str]:
    """What is wrong with a mapping, a line each, for `headwater check`."""
    places: dict[tuple[str, ...], int] = {}
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


def _leaves(target: _Target, path: tuple[str, ...]) -> Iterator[Leaf]:
    typed = (
        target
        if target.type or target.column_type
        else next((node for node in target.nodes if node.type or node.column_type), None)
    )
    type, column_type = (typed.type, typed.column_type) if typed else ("", "")
    has_object = any(Seen.OBJECT in node.seen for node in target.nodes)
    is_text = bool(typed) and has_object
    fed_by = [each for node in target.nodes for each in (node, *node.fallbacks)]
    nodes = [node for node in fed_by if node.seen & VALUES or (is_text and Seen.OBJECT in node.seen)]
    if nodes and path:
        yield Leaf(path, nodes, type, column_type, is_text)
    if not is_text:
        for name, child in target.children.items():
            yield from _leaves(child, (*path, name))


def _kept(fields: Iterable[FieldSettings]) -> Iterator[tuple[str, ...]]:
    for line in fields:
        if line.action == "cast":
            yield parse_pointer(line.src or line.dst)


def _mark(target: _Target, path: tuple[str, ...], line: FieldSettings) -> None:
    for part in path:
        found = target.children.get(part)
        if found is None:
            return
        target = found
    target.type, target.column_type = line.type, line.column_type


def _copy(node: Node) -> Node:
    return replace(node, children={name: _copy(child) for name, child in node.children.items()})


def _cut(root: Node, path: tuple[str, ...]) -> None:
    if not path:
        root.children.clear()
        return
    parent = root.find(path[:-1])
    if parent is not None:
        parent.children.pop(path[-1], None)


def _only(root: Node, paths: Iterable[tuple[str, ...]]) -> Node:
    """The tree with these paths alone."""
    kept = replace(root, children={})
    for path in paths:
        found = root.find(path)
        if found is None or not path:
            continue
        at, original = kept, root
        for part in path[:-1]:
            original = original.children[part]
            at = at.children.setdefault(part, replace(original, seen=Seen.OBJECT, children={}))
        at.children[path[-1]] = _copy(found)
    return kept


def _constant(value: Any) -> Node:
    if isinstance(value, bool):
        return Node(Constant(str(value).lower()), Seen.BOOL)
    if isinstance(value, int):
        return Node(Constant(str(value)), Seen.INT64 if -(2**63) <= value < 2**63 else Seen.BIG)
    if isinstance(value, float):
        return Node(Constant(repr(value)), Seen.FLOAT64)
    if isinstance(value, str):
        return Node(Constant(value), Seen.STRING)
    return Node(Constant(msgspec.json.encode(value).decode()), Seen.ARRAY)
