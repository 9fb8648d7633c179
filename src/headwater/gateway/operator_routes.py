"""GET /healthz, /readyz, /metrics and /openapi.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import orjson

from headwater.gateway.lineage_routes import openlineage_schemas
from headwater.http.endpoint import Answer, Endpoint
from headwater.http.openapi import document
from headwater.http.request import Request
from headwater.http.response import ProblemBody, Response
from headwater.http.router import Router
from headwater.metrics import Metrics

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
    summary="Report whether every part makes progress.",
    answers={
        200: Answer("Every part makes progress.", [Readiness]),
        503: Answer("A part does not, for the given reasons; or the server stops.", [Readiness, ProblemBody]),
    },
)
METRICS = Endpoint(
    method="GET",
    path="/metrics",
    operation_id="getMetrics",
    summary="Report all metrics as OpenMetrics text.",
    answers={200: Answer("The metrics.", [str], OPENMETRICS)},
    problems={401: "The API key is missing or unknown."},
    security=("key", ""),
)
DESCRIPTION = Endpoint(
    method="GET",
    path="/openapi.json",
    operation_id="getDescription",
    summary="Describe all endpoints as OpenAPI 3.1.",
    answers={200: Answer("The description.", [{"type": "object"}])},
)
_ALIVE = Response(200, msgspec.json.encode(Alive("alive")))


class OperatorRoutes:
    """Answers operators and their tools. `health` returns the reasons for which /readyz answers 503."""

    def __init__(
        self, router: Router, metrics: Metrics, health: Callable[[], list[str]], *, openmetrics: bool
    ) -> None:
        self._router = router
        self._metrics = metrics
        self._health = health
        self._openmetrics = openmetrics
        self._description: Response | None = None

    def add(self) -> None:
        """Serve the endpoints."""
        self._router.serve(HEALTH, self.get_health)
        self._router.serve(READINESS, self.get_readiness)
        self._router.serve(DESCRIPTION, self.get_description)
        if self._openmetrics:
            self._router.serve(METRICS, self.get_metrics)

    def get_health(self, request: Request) -> None:
        """Answer that the process is alive."""
        request.respond(_ALIVE)

    def get_readiness(self, request: Request) -> None:
        """Answer whether every part makes progress."""
        reasons = self._health()
        content = msgspec.json.encode(Readiness(not reasons, reasons))
        request.respond(Response(503 if reasons else 200, content))

    def get_metrics(self, request: Request) -> None:
        """Answer with all metrics."""
        request.respond(Response(200, self._metrics.openmetrics().encode(), content_type=OPENMETRICS))

    def get_description(self, request: Request) -> None:
        """Answer with the OpenAPI description of all endpoints that are served."""
        if self._description is None:  # all routes are added before the first request
            found = document(self._router.endpoints, openlineage_schemas())
            self._description = Response(200, orjson.dumps(found))
        request.respond(self._description)
