"""Compliant events, one for each place of the OpenLineage schema that names a job or dataset."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

SCHEMA = json.loads((files("headwater.gateway") / "openlineage_schema.json").read_text(encoding="utf-8"))
TEXTS = {"uri": "https://example.com/x", "date-time": "2026-01-01T00:00:00Z", "uuid": str(uuid.UUID(int=7))}


def events_naming(own: str, foreign: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each place as `RunEvent/job/facets/…/namespace`, and an event that has the foreign one there alone."""
    for alternative in SCHEMA["oneOf"]:
        kind = alternative["$ref"].rpartition("/")[2]
        for place in _places(alternative, (kind,)):
            event = _value(alternative, place[1:], own, foreign)
            yield "/".join(place), event | {"schemaURL": f"https://openlineage.io/x.json#/$defs/{kind}"}


def _places(
    schema: dict[str, Any], place: tuple[str, ...], above: frozenset[str] = frozenset()
) -> Iterator[tuple[str, ...]]:
    if (definition := schema.get("$ref", "")) in above:
        return  # a field of a field: the schema contains itself
    above |= {definition} - {""}
    schema = _resolved(schema)
    properties = schema.get("properties", {})
    if {"name", "namespace"} <= properties.keys():
        yield (*place, "namespace")
    for name, part in properties.items():
        yield from _places(part, (*place, name), above)
    if isinstance(part := schema.get("additionalProperties"), dict):
        yield from _places(part, (*place, "any"), above)
    if "items" in schema:
        yield from _places(schema["items"], (*place, "0"), above)
    for number, branch in enumerate(schema.get("allOf", ())):
        yield from _places(branch["then"], (*place, f"branch {number}"), above)


def _value(schema: dict[str, Any], place: tuple[str, ...], own: str, foreign: str) -> Any:
    """The smallest value of this schema that has the place."""
    schema = _resolved(schema)
    if "allOf" in schema:
        number = int(place[0].removeprefix("branch ")) if place else 0
        return _value(schema["allOf"][number]["then"], place[1:], own, foreign)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [_value(schema["items"], place[1:], own, foreign)] if place else []
    if schema.get("type") == "object" or "properties" in schema:
        names = {*schema.get("required", ()), *place[:1]}
        names |= {"name"} if "namespace" in names else set()
        return {name: _member(schema, name, place, own, foreign) for name in sorted(names)}
    return {"integer": 1, "number": 1.5, "boolean": True}.get(
        str(schema.get("type")), TEXTS.get(str(schema.get("format")), "text")
    )


def _member(schema: dict[str, Any], name: str, place: tuple[str, ...], own: str, foreign: str) -> Any:
    if name == "namespace":
        return foreign if place == ("namespace",) else own
    part = schema.get("properties", {}).get(name) or schema["additionalProperties"]
    return _value(part, place[1:] if place[:1] == (name,) else (), own, foreign)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema
