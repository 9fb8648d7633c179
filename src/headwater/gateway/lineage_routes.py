"""POST /api/v1/lineage and /api/v1/lineage/batch: OpenLineage events, validated and stored in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

import msgspec
import orjson

from headwater.clock import Clock
from headwater.gateway.acknowledger import Acknowledger, call_in_loop
from headwater.gateway.failed_events import FailedEvent, FailedEventHandler, FailedQueue
from headwater.gateway.json_limits import JsonLimits, UnreadableBody
from headwater.gateway.openlineage_validator import SCHEMA, Validator, Violation
from headwater.http.endpoint import Answer, Body, Endpoint
from headwater.http.request import Request
from headwater.http.response import BUSY, Problem, ProblemBody, Response
from headwater.http.router import Router
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings


class Accepted(msgspec.Struct, omit_defaults=True):
    """The event is on disk; `warnings` are violations that do not prevent acceptance."""

    status: Literal["success"]
    warnings: tuple[Violation, ...] = ()


class NotCompliant(ProblemBody, omit_defaults=True):
    """A problem whose `violations` name each place in the event."""

    violations: tuple[Violation, ...] = ()


class FailedInBatch(msgspec.Struct):
    """An event of a batch that was not stored."""

    index: int
    reason: str
    retriable: bool = False


class BatchSummary(msgspec.Struct):
    """The counts of a batch."""

    received: int
    successful: int
    failed: int
    retriable: int
    non_retriable: int


class BatchResult(msgspec.Struct):
    """The events of a batch that were stored are on disk; the others are listed."""

    status: Literal["success", "partial_success"]
    summary: BatchSummary
    failed_events: list[FailedInBatch]


_EVENT_SCHEMA = {"$ref": "#/components/schemas/Event"}
_PROBLEMS = {
    401: "The API key is missing or unknown.",
    413: "The event exceeds `gateway.max_event_bytes`, or the decompressed body `gateway.max_body_bytes`.",
    415: "The Content-Type is not JSON in UTF-8, or the Content-Encoding is not supported.",
    503: "The log cannot be written, or the gateway is busy or stopping; nothing was acknowledged.",
    507: "The disk is full; nothing was acknowledged.",
}
EVENT = Endpoint(
    method="POST",
    path="/api/v1/lineage",
    operation_id="postLineageEvent",
    summary="Store one OpenLineage event; 200 means that it is on disk.",
    answers={
        200: Answer("The event is on disk.", [Accepted]),
        400: Answer("The body cannot be read, or the event is not compliant.", [NotCompliant]),
    },
    problems=_PROBLEMS,
    body=Body([_EVENT_SCHEMA]),
    security=("key", ""),
)
BATCH = Endpoint(
    method="POST",
    path="/api/v1/lineage/batch",
    operation_id="postLineageBatch",
    summary="Store an array of OpenLineage events; 200 means that the compliant ones are on disk.",
    answers={200: Answer("The array was read; `failed_events` lists events not stored.", [BatchResult])},
    problems=_PROBLEMS
    | {
        400: "The body cannot be read, or is not an array.",
        413: "The batch exceeds `gateway.max_batch_events`, or its body `gateway.max_body_bytes`.",
    },
    body=Body([{"type": "array", "items": _EVENT_SCHEMA}]),
    security=("key", ""),
)
_ACCEPTED = Response(200, msgspec.json.encode(Accepted("success")))


class LineageRoutes:
    """Takes OpenLineage events: parse, validate, store, respond. Runs in the loop's thread."""

    def __init__(
        self,
        settings: GatewaySettings,
        log: Log,
        handler: FailedEventHandler,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._max_event_bytes = settings.max_event_bytes
        self._clock = clock
        self._json = JsonLimits(settings)
        self._acknowledger = Acknowledger(log, metrics)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.validator = Validator(strict=settings.strict)
        self.failed = FailedQueue(handler, self._handled, metrics, clock)
        self._received = metrics.counter("gateway_events_received")
        self._refused = metrics.counter("gateway_events_refused")
        self._warned = metrics.counter("gateway_events_warned")

    def add(self, router: Router) -> None:
        """Serve the endpoints."""
        router.serve(EVENT, self.post_event)
        router.serve(BATCH, self.post_batch)

    def start(self) -> None:
        """Start the thread of the failed events; call it in the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self.failed.start()

    async def close(self, timeout_seconds: float) -> None:
        """Pass the last failed events to their handler."""
        await asyncio.to_thread(self.failed.close, timeout_seconds)

    def post_event(self, request: Request) -> None:
        """Store one event."""
        self._received.add(1)
        body = b""
        try:
            body = self._json.read_body(request)
            event = self._json.parse_event(body)
        except Problem as problem:
            self._refuse(request, body, problem)
            return
        validation = self.validator.check(event)
        if validation.errors:
            refusal = Problem(
                400,
                "not_compliant",
                validation.summary,
                hint="Fix the producer; `violations` names each place. The failed-event handler has it.",
                details={"violations": _json(validation.errors)},
            )
            self._refuse(request, body, refusal, validation.errors)
            return
        response = _ACCEPTED
        if validation.warnings:
            self._warned.add()
            response = Response(200, msgspec.json.encode(Accepted("success", validation.warnings)))
        self._acknowledger.store(request, [body], response)

    def post_batch(self, request: Request) -> None:
        """Store the compliant events of an array; the others are listed and affect no other event (G6)."""
        body = b""
        try:
            body = self._json.read_body(request)
            events = self._json.split_batch(body)
        except Problem as problem:
            self._received.add(1)
            self._refuse(request, body, problem)
            return
        request.reserve(len(body))  # splitting has copied it
        self._received.add(len(events))
        compliant: list[bytes] = []
        not_stored: list[FailedInBatch] = []
        failed: list[FailedEvent] = []
        for index, (event_body, event, problem_found) in enumerate(events):
            violations: Sequence[Violation] = ()
            if problem_found is not None:
                reason, code = problem_found.text, problem_found.code
                goes_to_handler = isinstance(problem_found, UnreadableBody)
            else:
                validation = self.validator.check(event)
                if validation.ok:
                    compliant.append(event_body)
                    if validation.warnings:
                        self._warned.add()
                    continue
                reason, code, goes_to_handler = validation.summary, "not_compliant", True
                violations = validation.errors
            self._refused.add(1, code)
            not_stored.append(FailedInBatch(index, reason))
            if goes_to_handler:
                failed.append(self._failed_event(event_body, reason, violations))
        if failed and self.failed.is_full:
            request.respond(BUSY)
            return
        response = Response(200, msgspec.json.encode(_result(len(events), not_stored)))

        def respond() -> None:
            if failed:
                self.failed.put(failed, (request, response))
            else:
                request.respond(response)

        if compliant:
            self._acknowledger.store(request, compliant, response, then=respond)
        else:
            respond()

    def _refuse(
        self, request: Request, body: bytes, problem: Problem, violations: Sequence[Violation] = ()
    ) -> None:
        """Answer with a problem; an event that is unreadable or not compliant goes to the handler first."""
        self._refused.add(1, problem.code)
        if not violations and not isinstance(problem, UnreadableBody):
            request.respond(problem.response())
        elif self.failed.is_full:
            request.respond(BUSY)
        else:
            failed = self._failed_event(body, problem.text, violations)
            self.failed.put([failed], (request, problem.response()))

    def _failed_event(self, body: bytes, reason: str, violations: Sequence[Violation]) -> FailedEvent:
        return FailedEvent(body[: self._max_event_bytes], reason, list(violations), self._clock.now())

    def _handled(self, answers: list[tuple[Request, Response]]) -> None:
        """Called by the thread of the failed events."""
        assert self._loop is not None
        call_in_loop(self._loop, _respond_all, answers)


def openlineage_schemas() -> dict[str, Any]:
    """Return the derived OpenLineage schema as components of OpenAPI; `Event` is any event."""
    text = files(__package__).joinpath(SCHEMA).read_text(encoding="utf-8")
    schema = orjson.loads(text.replace("#/$defs/", "#/components/schemas/"))
    definitions: dict[str, Any] = schema["$defs"]
    return definitions | {"Event": {"oneOf": schema["oneOf"]}}


def _respond_all(answers: list[tuple[Request, Response]]) -> None:
    for request, response in answers:
        request.respond(response)


def _result(received: int, rejected: list[FailedInBatch]) -> BatchResult:
    failed = len(rejected)
    summary = BatchSummary(received, received - failed, failed, 0, failed)
    return BatchResult("partial_success" if rejected else "success", summary, rejected)


def _json(violations: Sequence[Violation]) -> list[dict[str, str]]:
    return [msgspec.structs.asdict(violation) for violation in violations]
