"""Schemas of datasets: the fields of a `schema` facet as flat rows, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from headwater.graph.values import items, text

__all__ = ["Change", "Field", "changes", "flatten", "pack", "unpack"]

MAX_FIELDS = 10_000
MAX_DEPTH = 20
MAX_DESCRIPTION = 1_000


class Field(msgspec.Struct, frozen=True, array_like=True):
    """A field; one inside another is named by the path to it, with dots."""

    name: str
    type: str = ""
    description: str = ""


class Change(msgspec.Struct, frozen=True):
    """One difference between two schemas: `added`, `removed`, or `retyped`."""

    kind: str
    field: str
    before: str = ""
    after: str = ""


def flatten(facet: dict[str, Any]) -> list[Field]:
    """The fields of a `schema` facet in their order, those inside others after them."""
    found: dict[str, Field] = {}
    for field in _walk(facet.get("fields"), "", 0):
        found.setdefault(field.name, field)
        if len(found) >= MAX_FIELDS:
            break
    return list(found.values())


def _walk(fields: object, prefix: str, depth: int) -> Iterator[Field]:
    for field in items(fields):
        if not isinstance(field.get("name"), str):
            continue
        name = text(prefix + field["name"])
        yield Field(name, text(field.get("type")), text(field.get("description"))[:MAX_DESCRIPTION])
        if depth < MAX_DEPTH:
            yield from _walk(field.get("fields"), f"{name}.", depth + 1)


def pack(fields: Sequence[Field]) -> tuple[bytes, bytes]:
    """The schema's id, which follows from its content, and the content."""
    content = msgspec.json.encode(fields)
    return blake2b(content, digest_size=16).digest(), content


def unpack(content: bytes) -> list[Field]:
    """The fields of a packed schema."""
    return msgspec.json.decode(content, type=list[Field])


def changes(before: Sequence[Field], after: Sequence[Field]) -> list[Change]:
    """What became of the fields: removed ones, then added and retyped ones in their order."""
    old = {field.name: field.type for field in before}
    new = {field.name: field.type for field in after}
    found = [Change("removed", name, before=kind) for name, kind in old.items() if name not in new]
    for name, kind in new.items():
        if name not in old:
            found.append(Change("added", name, after=kind))
        elif old[name] != kind:
            found.append(Change("retyped", name, old[name], kind))
    return found
