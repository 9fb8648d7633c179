"""The description of the routes that take events for the pipeline."""

from __future__ import annotations

from typing import Any

from headwater.gateway.event_routes import BROWSER_PATHS, BULK_PATH, SERVER_PATHS
from headwater.gateway.openapi.parts import COUNT, TEXT, answer, obj, operation, ref

__all__ = ["EVENT_SCHEMAS", "SECURITY_SCHEMES", "event_paths"]

_SENDERS = {
    400: "The body cannot be read, or the event is not an object.",
    401: "The token is missing or unknown, or not for this route.",
    413: "The body or the event is larger than allowed, also after decompression; or too many events.",
    415: "Neither JSON in UTF-8 nor one of the other types, or an unknown coding.",
    429: "More events a second than the token may send; come back after `Retry-After` seconds.",
    503: "The disk cannot be written, or too much waits for it; nothing was acknowledged.",
    507: "The disk is full; nothing was acknowledged.",
}
_BROWSERS = _SENDERS | {403: "Pages of this origin may not send with this token."}
_BODY = {"anyOf": [ref("PipelineEvent"), ref("PipelineEvents"), ref("PipelineEnvelope")]}

SECURITY_SCHEMES = {
    "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "tokenQuery": {"type": "apiKey", "in": "query", "name": "token"},
}
EVENT_SCHEMAS: dict[str, Any] = {
    "PipelineEvent": {"type": "object"},
    "PipelineEvents": {"type": "array", "items": ref("PipelineEvent")},
    "PipelineEnvelope": {
        **obj("template events", template=ref("PipelineEvent"), events=ref("PipelineEvents")),
        "additionalProperties": False,
    },
    "EventAccepted": obj("status", status={"const": "ok"}),
    "EventsResult": obj(
        "status accepted refused problems",
        status={"enum": ["ok", "partial"]},
        accepted=COUNT,
        refused=COUNT,
        problems={
            "type": "array",
            "items": obj("error reason", index=COUNT, line=COUNT, error=TEXT, reason=TEXT),
        },
    ),
}


def event_paths() -> dict[str, Any]:
    """Their paths; they are served where the settings have tokens."""
    paths: dict[str, Any] = {}
    for path, name in zip(BROWSER_PATHS, ("Event", "Events"), strict=True):
        paths[path] = {
            "post": _post(f"postBrowser{name}", "browser", _BROWSERS, ("tokenQuery", "token")),
            "options": operation(
                f"askBrowser{name}",
                "Whether a page may send, which browsers ask first.",
                {"204": {"description": "The headers say whether it may."}},
                {},
                security=(),
            ),
        }
    for path, name in zip(SERVER_PATHS, ("Event", "Events"), strict=True):
        paths[path] = {"post": _post(f"postServer{name}", "server", _SENDERS, ("token",))}
    paths[BULK_PATH] = {
        "post": operation(
            "postBulk",
            "Take lines of JSON from a server; those that are events are on disk at 200.",
            answer(200, "Read; the body says which lines were not taken, and why.", "EventsResult"),
            _SENDERS,
            body=TEXT,
            types=("application/x-ndjson", "text/plain"),
            security=("token",),
        )
    }
    return paths


def _post(name: str, who: str, problems: dict[int, str], security: tuple[str, ...]) -> dict[str, Any]:
    return operation(
        name,
        f"Take an event, several, or several with a template, from a {who}; 200 means on disk.",
        answer(200, "On disk; for several, with those that were not taken.", "EventAccepted", "EventsResult"),
        problems,
        body=_BODY,
        security=security,
    )
