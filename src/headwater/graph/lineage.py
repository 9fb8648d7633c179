"""The two facets that tell lineage between columns: `columnLineage` (1-2-0) and `lineage` (1-0-0).

Both become the same ties. A tie's field is None where the dataset as a whole is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from headwater.graph.values import identity, items, mapping, text

__all__ = ["JobTie", "Tie", "column_lineage", "lineage", "lineage_entries"]

Identity = tuple[str, str]
MAX_DESCRIPTION = 1_000
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
