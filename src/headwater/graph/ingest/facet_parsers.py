"""The two facets that tell lineage between columns: `columnLineage` (1-2-0) and `lineage` (1-0-0).

Both become the same ties. A tie's field is None where the dataset as a whole is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from headwater.graph.ingest.untrusted_json import identity, items, mapping, text

__all__ = [
    "Change",
    "Field",
    "JobTie",
    "Tie",
    "changes",
    "column_lineage",
    "flatten",
    "lineage",
    "lineage_entries",
    "pack",
    "unpack",
]


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


Identity = tuple[str, str]


MAX_WORD = 64  # characters of a transformation's type or subtype


class Tie(NamedTuple):
    """A field, or a dataset as a whole (None), of which a field, or all, of the target is made."""

    source: Identity
    source_field: str | None
    target_field: str | None
    type: str
    subtype: str
    masking: bool
    description: str


class JobTie(NamedTuple):
    """The target of a `lineage` facet is fed by a job; None: the event's own."""

    job: Identity | None


def column_lineage(facet: dict[str, Any]) -> Iterator[Tie]:
    """The ties of a `columnLineage` facet."""
    for name, field in mapping(facet.get("fields")).items():
        field = mapping(field)
        old = _old_transformation(field)
        for source in items(field.get("inputFields")):
            if isinstance(source.get("field"), str):
                yield from _ties(source, text(name), old)
    for source in items(facet.get("dataset")):
        if isinstance(source.get("field"), str):
            yield from _ties(source, None, {"type": "INDIRECT"})


def _old_transformation(field: dict[str, Any]) -> dict[str, Any]:
    """What the facet's first versions said once per field, in today's words."""
    kind = field.get("transformationType")
    if kind == "MASKED":
        return {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True} | _described(field)
    subtype = "IDENTITY" if kind == "IDENTITY" else ""
    return {"type": "DIRECT", "subtype": subtype} | _described(field)


def _described(field: dict[str, Any]) -> dict[str, Any]:
    return {"description": field.get("transformationDescription")}


def lineage(entry: dict[str, Any]) -> Iterator[Tie | JobTie]:
    """The ties of a dataset's `lineage` facet, or of one dataset entry of a job's."""
    for source in items(entry.get("inputs")):
        if source.get("type") == "JOB":
            yield JobTie(identity(source))
        else:
            yield from _ties(source, None, {"type": "INDIRECT" if "field" in source else "DIRECT"})
    for name, field in mapping(entry.get("fields")).items():
        for source in items(mapping(field).get("inputs")):
            if source.get("type") == "JOB":
                yield JobTie(identity(source))
            else:
                yield from _ties(source, text(name), {"type": "DIRECT"})


def lineage_entries(facet: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of a job's `lineage` facet."""
    return items(facet.get("entries"))


def _place(source: dict[str, Any]) -> str:
    """A field, and where it holds JSON text, the place in that: `value/customer/city`."""
    pointer = source.get("jsonPointer")
    return text(source["field"]) + (text(pointer) if text(pointer).startswith("/") else "")


def _ties(source: dict[str, Any], target_field: str | None, otherwise: dict[str, Any]) -> Iterator[Tie]:
    if (dataset := identity(source)) is None:
        return
    field = _place(source) if isinstance(source.get("field"), str) else None
    for told in list(items(source.get("transformations"))) or [otherwise]:
        yield Tie(
            dataset,
            field,
            target_field,
            text(told.get("type"))[:MAX_WORD].upper() or "DIRECT",
            text(told.get("subtype"))[:MAX_WORD].upper(),
            told.get("masking") is True,
            text(told.get("description"))[:MAX_DESCRIPTION],
        )
