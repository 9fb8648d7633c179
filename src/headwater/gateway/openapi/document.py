"""The OpenAPI 3.1 description of the gateway, served at /openapi.json.

docs/http.md says the same to people; a test compares the two, and another one drives the real server by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import Any

import orjson

from headwater import __version__
from headwater.gateway.openapi.events import EVENT_SCHEMAS, SECURITY_SCHEMES, event_paths
from headwater.gateway.openapi.parts import ANY_ROUTE, COUNT, FLAG, TEXT, answer, obj, operation, ref

__all__ = ["ANY_ROUTE", "SCHEMAS", "describe"]

_BEARER = {"type": "http", "scheme": "bearer"}
_NONE: Mapping[str, Any] = {}
_KEY = {401: "The API key is missing or unknown."}
_EVENTS = _KEY | {
    400: "The body cannot be read, or the event is not compliant; `violations` names each place.",
    413: "The body or the event is larger than allowed, also after decompression.",
    415: "Neither JSON in UTF-8 nor one of the known codings.",
    503: "The disk cannot be written, or too much waits for it; nothing was acknowledged.",
    507: "The disk is full; nothing was acknowledged.",
}


def describe(
    served: Collection[str] | None = None,
    *,
    further_paths: Mapping[str, Any] = _NONE,
    further_schemas: Mapping[str, Any] = _NONE,
) -> dict[str, Any]:
    """The description as data, with the schemas of OpenLineage events inside; only of the paths served.

    `further_…` are what other stages serve; a path that is here already gets their methods beside ours.
    """
    paths = _paths() | event_paths()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            path: paths.get(path, {}) | further_paths.get(path, {})
            for path in {**paths, **further_paths}
            if served is None or path in served or path in further_paths
        },
        "components": {
            "schemas": {**SCHEMAS, **_event_schemas(), **further_schemas},
            "securitySchemes": {"key": _BEARER, "admin": _BEARER} | SECURITY_SCHEMES,
        },
    }


SCHEMAS: dict[str, Any] = EVENT_SCHEMAS | {
    "Violation": obj("path reason rule", path=TEXT, reason=TEXT, rule=TEXT),
    "Problem": obj(
        "error message hint retryable",
        error=TEXT,
        message=TEXT,
        hint=TEXT,
        retryable=FLAG,
        violations={"type": "array", "items": ref("Violation")},
    ),
    "Accepted": obj(
        "status", status={"const": "success"}, warnings={"type": "array", "items": ref("Violation")}
    ),
    "BatchResult": obj(
        "status summary failed_events",
        status={"enum": ["success", "partial_success"]},
        summary=obj(
            "received successful failed retriable non_retriable",
            received=COUNT,
            successful=COUNT,
            failed=COUNT,
            retriable=COUNT,
            non_retriable=COUNT,
        ),
        failed_events={
            "type": "array",
            "items": obj("index reason retriable", index=COUNT, reason=TEXT, retriable=FLAG),
        },
    ),
    "Alive": obj("status", status={"const": "alive"}),
    "Readiness": obj("ready reasons", ready=FLAG, reasons={"type": "array", "items": TEXT}),
    "Description": obj("openapi paths", openapi=TEXT, paths={"type": "object"}),
}


def _paths() -> dict[str, Any]:
    return {
        "/api/v1/lineage": {
            "post": operation(
                "postLineageEvent",
                "Take one OpenLineage event; 200 means that it is on disk.",
                answer(200, "On disk. `warnings` names what is odd but accepted.", "Accepted"),
                _EVENTS,
                body=ref("Event"),
            )
        },
        "/api/v1/lineage/batch": {
            "post": operation(
                "postLineageBatch",
                "Take an array of OpenLineage events; the compliant ones are on disk at 200.",
                answer(200, "Read; the body says which events were not taken, and why.", "BatchResult"),
                _EVENTS,
                body={"type": "array", "items": ref("Event")},
            )
        },
        "/healthz": {
            "get": operation(
                "getHealth", "Whether the process is alive.", answer(200, "Alive.", "Alive"), {}, security=()
            )
        },
        "/readyz": {
            "get": operation(
                "getReadiness",
                "Whether everything that should move does.",
                answer(200, "Ready.", "Readiness")
                | answer(503, "Not ready, with the reasons; or stopping.", "Readiness", "Problem"),
                {},
                security=(),
            )
        },
        "/metrics": {
            "get": operation(
                "getMetrics",
                "All numbers as OpenMetrics text.",
                {
                    "200": {
                        "description": "The numbers.",
                        "content": {
                            "application/openmetrics-text; version=1.0.0; charset=utf-8": {
                                "schema": {"type": "string"}
                            }
                        },
                    }
                },
                _KEY,
            )
        },
        "/openapi.json": {
            "get": operation(
                "getDescription",
                "This description.",
                answer(200, "The description.", "Description"),
                {},
                security=(),
            )
        },
    }


def _event_schemas() -> dict[str, Any]:
    """The derived OpenLineage schema, its definitions moved to where OpenAPI keeps them."""
    text = files("headwater.gateway.openlineage").joinpath("schema.json").read_text(encoding="utf-8")
    schema = orjson.loads(text.replace("#/$defs/", "#/components/schemas/"))
    definitions: dict[str, Any] = schema["$defs"]
    clash = definitions.keys() & (SCHEMAS.keys() | {"Event"})
    assert not clash, f"names used twice: {clash}"
    return definitions | {"Event": {"oneOf": schema["oneOf"]}}
