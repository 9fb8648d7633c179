"""Parses the facets that become rows: schema, columnLineage (1-2-0), lineage (1-0-0) and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.graph.ingest.untrusted_json import count, identity, items, mapping, text

MAX_FIELDS = 10_000  # of one schema
MAX_EDGES = 20_000  # of one facet
MAX_DEPTH = 20
MAX_DESCRIPTION = 1_000
MAX_TYPE = 64  # characters of a transformation's type or subtype

Identity = tuple[str, str]


# --- schema ------------------------------------------------------------------------------------------


class Field(msgspec.Struct, frozen=True, array_like=True):
    """A field of a schema; a nested field has a dotted name."""

    name: str
    type: str = ""
    description: str = ""


def schema_fields(facet: dict[str, Any]) -> tuple[list[Field], int]:
    """The fields of a `schema` facet in their order, nested fields after their parent, and how many more."""
    found: dict[str, Field] = {}
    omitted = 0
    for field in _nested(facet.get("fields"), "", 0):
        if len(found) < MAX_FIELDS:
            found.setdefault(field.name, field)
        elif field.name not in found:
            omitted += 1
    return list(found.values()), omitted


def _nested(fields: object, prefix: str, depth: int) -> Iterator[Field]:
    for field in items(fields):
        if not isinstance(field.get("name"), str):
            continue
        name = text(prefix + field["name"])
        yield Field(name, text(field.get("type")), text(field.get("description"))[:MAX_DESCRIPTION])
        if depth < MAX_DEPTH:
            yield from _nested(field.get("fields"), f"{name}.", depth + 1)


def pack(fields: Sequence[Field]) -> tuple[bytes, bytes]:
    """The schema's id, which follows from its content, and its content."""
    content = msgspec.json.encode(fields)
    return blake2b(content, digest_size=16).digest(), content


_FIELDS = json_decoder(list[Field])


def unpack(content: bytes) -> list[Field]:
    """The fields of a packed schema."""
    return _FIELDS.decode(content)


# --- lineage -----------------------------------------------------------------------------------------


class LineageEdge(NamedTuple):
    """An edge into the facet's dataset; a field that is None stands for the whole dataset."""

    source: Identity
    source_field: str | None
    target_field: str | None
    type: str
    subtype: str
    masking: bool
    description: str


class WritesEdge(NamedTuple):
    """A job writes the dataset of a `lineage` facet; None: the job of the event."""

    job: Identity | None


def column_lineage(facet: dict[str, Any]) -> Iterator[LineageEdge]:
    """The edges of a `columnLineage` facet."""
    for name, field in mapping(facet.get("fields")).items():
        field = mapping(field)
        old = _old_transformation(field)
        for source in items(field.get("inputFields")):
            if isinstance(source.get("field"), str):
                yield from _edges(source, text(name), old)
    for source in items(facet.get("dataset")):
        if isinstance(source.get("field"), str):
            yield from _edges(source, None, {"type": "INDIRECT"})


def _old_transformation(field: dict[str, Any]) -> dict[str, Any]:
    """The transformation of the facet's first versions, one per field, in the form of version 1-2-0."""
    kind = field.get("transformationType")
    described = {"description": field.get("transformationDescription")}
    if kind == "MASKED":
        return {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True} | described
    return {"type": "DIRECT", "subtype": "IDENTITY" if kind == "IDENTITY" else ""} | described


def lineage(entry: dict[str, Any]) -> Iterator[LineageEdge | WritesEdge]:
    """The edges of a dataset's `lineage` facet, or of one dataset entry of a job's."""
    for source in items(entry.get("inputs")):
        if source.get("type") == "JOB":
            yield WritesEdge(identity(source))
        else:
            yield from _edges(source, None, {"type": "INDIRECT" if "field" in source else "DIRECT"})
    for name, field in mapping(entry.get("fields")).items():
        for source in items(mapping(field).get("inputs")):
            if source.get("type") == "JOB":
                yield WritesEdge(identity(source))
            else:
                yield from _edges(source, text(name), {"type": "DIRECT"})


def lineage_entries(facet: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of a job's `lineage` facet."""
    return items(facet.get("entries"))


def _edges(
    source: dict[str, Any], target_field: str | None, default: dict[str, Any]
) -> Iterator[LineageEdge]:
    if (dataset := identity(source)) is None:
        return
    field = _source_field(source) if isinstance(source.get("field"), str) else None
    for transformation in list(items(source.get("transformations"))) or [default]:
        yield LineageEdge(
            dataset,
            field,
            target_field,
            text(transformation.get("type"))[:MAX_TYPE].upper() or "DIRECT",
            text(transformation.get("subtype"))[:MAX_TYPE].upper(),
            transformation.get("masking") is True,
            text(transformation.get("description"))[:MAX_DESCRIPTION],
        )


def _source_field(source: dict[str, Any]) -> str:
    """A field and, where it holds JSON text, the pointer into it: `value/customer/city`."""
    pointer = text(source.get("jsonPointer"))
    return text(source["field"]) + (pointer if pointer.startswith("/") else "")


# --- statistics --------------------------------------------------------------------------------------


def statistics(facets: dict[str, Any], extra: dict[str, Any]) -> tuple[int, int, int] | None:
    """Rows, bytes and files (-1: unknown) from the first facet that has each; None without any."""
    if not extra and "dataQualityMetrics" not in facets:
        return None
    rows = size = files = -1
    for facet in (
        extra.get("outputStatistics"),
        extra.get("inputStatistics"),
        extra.get("dataQualityMetrics"),
        facets.get("dataQualityMetrics"),
    ):
        values = mapping(facet)
        rows = rows if rows >= 0 else count(values.get("rowCount"))
        size = size if size >= 0 else count(values.get("size", values.get("bytes")))
        files = files if files >= 0 else count(values.get("fileCount"))
    return None if rows == size == files == -1 else (rows, size, files)
