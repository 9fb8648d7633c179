"""The OpenAPI 3.1 description of the gateway, served at /openapi.json.

docs/http.md says the same to people; a test compares the two, and another one drives the real server by it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import orjson

from headwater import __version__

__all__ = ["ANY_ROUTE", "SCHEMAS", "describe"]

# What the wire or the application may answer whatever the route; docs/http.md has them once, for all.
ANY_ROUTE = {
    400: "Malformed HTTP, or a body that cannot be read.",
    408: "The request did not arrive in time.",
    413: "The body is larger than allowed.",
    417: "An `Expect` other than 100-continue.",
    431: "Request line and headers are too large.",
    500: "A fault of the gateway.",
    503: "Busy, stopping, or too many connections; come back after `Retry-After` seconds.",
    505: "An HTTP version other than 1.0 and 1.1.",
}
_KEY = {401: "The API key is missing or unknown."}
_EVENTS = _KEY | {
    400: "The body cannot be read, or the event is not compliant; `violations` names each place.",
    413: "The body or the event is larger than allowed, also after decompression.",
    415: "Neither JSON in UTF-8 nor one of the known codings.",
    503: "The disk cannot be written, or too much waits for it; nothing was acknowledged.",
    507: "The disk is full; nothing was acknowledged.",
}
_CODINGS = ["identity", "gzip", "x-gzip", "zstd"]


def describe() -> dict[str, Any]:
    """The description as data, with the schemas of OpenLineage events inside."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            "/api/v1/lineage": {
                "post": _operation(
                    "postLineageEvent",
                    "Take one OpenLineage event; 200 means that it is on disk.",
                    _json(200, "On disk. `warnings` names what is odd but accepted.", "Accepted"),
                    _EVENTS,
                    body=_ref("Event"),
                )
            },
            "/api/v1/lineage/batch": {
                "post": _operation(
                    "postLineageBatch",
                    "Take an array of OpenLineage events; the compliant ones are on disk at 200.",
                    _json(200, "Read; the body says which events were not taken, and why.", "BatchResult"),
                    _EVENTS,
                    body={"type": "array", "items": _ref("Event")},
                )
            },
            "/healthz": {
                "get": _operation(
                    "getHealth", "Whether the process is alive.", _json(200, "Alive.", "Alive"), {}, key=False
                )
            },
            "/readyz": {
                "get": _operation(
                    "getReadiness",
                    "Whether everything that should move does.",
                    _json(200, "Ready.", "Readiness")
                    | _json(503, "Not ready, with the reasons; or stopping.", "Readiness", "Problem"),
                    {},
                    key=False,
                )
            },
            "/metrics": {
                "get": _operation(
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
                "get": _operation(
                    "getDescription",
                    "This description.",
                    _json(200, "The description.", "Description"),
                    {},
                    key=False,
                )
            },
        },
        "components": {
            "schemas": SCHEMAS | _event_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _ref(*names: str) -> dict[str, Any]:
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return refs[0] if len(refs) == 1 else {"anyOf": refs}


def _json(status: int, text: str, *schemas: str) -> dict[str, Any]:
    return {str(status): {"description": text, "content": {"application/json": {"schema": _ref(*schemas)}}}}


def _operation(
    name: str,
    text: str,
    answers: dict[str, Any],
    problems: dict[int, str],
    *,
    body: dict[str, Any] | None = None,
    key: bool = True,
) -> dict[str, Any]:
    for status, description in sorted((ANY_ROUTE | problems).items()):
        if str(status) not in answers:
            answers |= _json(status, description, "Problem")
            if status in (503, 507):
                answers[str(status)]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    operation: dict[str, Any] = {"operationId": name, "summary": text, "responses": answers}
    if key:  # the empty one: a gateway without `api_keys` asks for none
        operation["security"] = [{"key": []}, {}]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        operation["parameters"] = [
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "enum": _CODINGS},
            }
        ]
    return operation


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
SCHEMAS: dict[str, Any] = {
    "Violation": _object("path reason rule", path=_TEXT, reason=_TEXT, rule=_TEXT),
    "Problem": _object(
        "error message hint retryable",
        error=_TEXT,
        message=_TEXT,
        hint=_TEXT,
        retryable=_FLAG,
        violations={"type": "array", "items": _ref("Violation")},
    ),
    "Accepted": _object(
        "status", status={"const": "success"}, warnings={"type": "array", "items": _ref("Violation")}
    ),
    "BatchResult": _object(
        "status summary failed_events",
        status={"enum": ["success", "partial_success"]},
        summary=_object(
            "received successful failed retriable non_retriable",
            received=_COUNT,
            successful=_COUNT,
            failed=_COUNT,
            retriable=_COUNT,
            non_retriable=_COUNT,
        ),
        failed_events={
            "type": "array",
            "items": _object("index reason retriable", index=_COUNT, reason=_TEXT, retriable=_FLAG),
        },
    ),
    "Alive": _object("status", status={"const": "alive"}),
    "Readiness": _object("ready reasons", ready=_FLAG, reasons={"type": "array", "items": _TEXT}),
    "Description": _object("openapi paths", openapi=_TEXT, paths={"type": "object"}),
}


def _event_schemas() -> dict[str, Any]:
    """The derived OpenLineage schema, its definitions moved to where OpenAPI keeps them."""
    text = files(__package__).joinpath("openlineage_schema.json").read_text(encoding="utf-8")
    schema = orjson.loads(text.replace("#/$defs/", "#/components/schemas/"))
    definitions: dict[str, Any] = schema["$defs"]
    clash = definitions.keys() & (SCHEMAS.keys() | {"Event"})
    assert not clash, f"names used twice: {clash}"
    return definitions | {"Event": {"oneOf": schema["oneOf"]}}
