"""The pieces that descriptions of routes are made of."""

from __future__ import annotations

from typing import Any

__all__ = ["ANY_ROUTE", "COUNT", "FLAG", "TEXT", "answer", "obj", "operation", "ref"]

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
_CODINGS = ["identity", "gzip", "x-gzip", "zstd"]


def ref(*names: str) -> dict[str, Any]:
    """A schema by its name, or one of several."""
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return refs[0] if len(refs) == 1 else {"anyOf": refs}


def answer(status: int, text: str, *schemas: str) -> dict[str, Any]:
    """An answer in JSON."""
    return {str(status): {"description": text, "content": {"application/json": {"schema": ref(*schemas)}}}}


def operation(
    name: str,
    text: str,
    answers: dict[str, Any],
    problems: dict[int, str],
    *,
    body: dict[str, Any] | None = None,
    types: tuple[str, ...] = ("application/json",),
    security: tuple[str, ...] = ("key", ""),
) -> dict[str, Any]:
    """One method of a path, with what any route may answer. An empty scheme: none may be asked for."""
    for status, description in sorted((ANY_ROUTE | problems).items()):
        if str(status) not in answers:
            answers |= answer(status, description, "Problem")
            if status in (429, 503, 507):
                answers[str(status)]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    found: dict[str, Any] = {"operationId": name, "summary": text, "responses": answers}
    if security:
        found["security"] = [{scheme: []} if scheme else {} for scheme in security]
    if body is not None:
        content = {kind: {"schema": body} for kind in types}
        found["requestBody"] = {"required": True, "content": content}
        found["parameters"] = [
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "enum": _CODINGS},
            }
        ]
    return found


def obj(required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object; `required` lists names with spaces in between."""
    return {"type": "object", "required": required.split(), "properties": properties}


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
FLAG = {"type": "boolean"}
