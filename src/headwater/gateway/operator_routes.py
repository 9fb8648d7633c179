"""GET /healthz, /readyz, /metrics and /openapi.json."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Literal

import msgspec
import orjson

from headwater.gateway.lineage_routes import openlineage_schemas
from headwater.http.auth import OperatorAccess
from headwater.http.request import Request
from headwater.http.response import ProblemBody, Response
from headwater.http.routing.endpoint import Answer, Endpoint
from headwater.http.routing.openapi import document
from headwater.http.routing.router import Router
from headwater.metrics import Metrics

HIDDEN = "hidden: send the admin token or an API key, or use a name of this server, to read the reasons"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Alive(msgspec.Struct):
    """The process is alive."""

    status: Literal["alive"]


class Readiness(msgspec.Struct):
    """Whether every part makes progress, and if not, the reasons."""

    ready: bool
    reasons: list[str]


HEALTH = Endpoint(
    method="GET",
    path="/healthz",
    operation_id="getHealth",
    summary="Report whether the process is alive.",
    answers={200: Answer("The process is alive.", [Alive])},
)
READINESS = Endpoint(
    method="GET",
    path="/readyz",
    operation_id="getReadiness",
    summary="Report whether every part makes progress; the reasons only to those who may read metrics.",
    answers={
        200: Answer("Every part makes progress.", [Readiness]),
        503: Answer("A part does not, for the given reasons; or the server stops.", [Readiness, ProblemBody]),
    },
    security=("", "key", "admin"),
)
METRICS = Endpoint(
    method="GET",
    path="/metrics",
    operation_id="getMetrics",
    summary="Report all metrics as OpenMetrics text.",
    answers={200: Answer("The metrics.", [str], OPENMETRICS)},
    problems={
        401: "There are keys or an admin token, and none of them was sent.",
        403: "There are none, and the `Host` header has a name that a foreign site could have.",
    },
    security=("key", "admin", ""),
)
DESCRIPTION = Endpoint(
    method="GET",
    path="/openapi.json",
    operation_id="getDescription",
    summary="Describe all endpoints as OpenAPI 3.1.",
    answers={200: Answer("The description.", [{"type": "object"}])},
)
_ALIVE = Response(200, msgspec.json.encode(Alive("alive")))


def add_operator_routes(
    router: Router, metrics: Metrics, access: OperatorAccess, health: Callable[[], list[str]]
) -> None:
    """Serve the endpoints. `health` returns the reasons for which /readyz answers 503."""

    def get_readiness(request: Request) -> None:
        reasons = health()
        if reasons and access.authorize(request) is not None:
            reasons = [HIDDEN]
        content = msgspec.json.encode(Readiness(not reasons, reasons))
        request.respond(Response(503 if reasons else 200, content))

    async def get_metrics(request: Request) -> None:
        # In a thread: some gauges list a folder.
        text = await asyncio.to_thread(metrics.openmetrics)
        request.respond(Response(200, text.encode(), content_type=OPENMETRICS))

    @cache  # all routes are added before the first request
    def description() -> Response:
        return Response(200, orjson.dumps(document(router.endpoints, openlineage_schemas())))

    router.serve(HEALTH, lambda request: request.respond(_ALIVE), is_probe=True)
    router.serve(READINESS, get_readiness, checks_keys=True, is_probe=True)
    router.serve(DESCRIPTION, lambda request: request.respond(description()))
    router.serve(METRICS, get_metrics, before_body=access.authorize, checks_keys=True)
