"""POST /api/v1/lineage and /api/v1/lineage/batch: OpenLineage events, validated and stored in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Literal

import msgspec
import orjson

from headwater.clock import Clock
from headwater.formats.printable import printable_line
from headwater.gateway.acknowledger import Acknowledger, call_in_loop
from headwater.gateway.failed_events import FailedEvent, FailedEventHandler, FailedQueue
from headwater.gateway.idempotency import IdempotencyKeys
from headwater.gateway.json_limits import JsonLimits, UnreadableBody
from headwater.gateway.openlineage_validator import ECHO, SCHEMA, Budget, Validator, Violation
from headwater.gateway.senders.key_namespaces import KeyNamespaces, Namespaces
from headwater.gateway.senders.origins import Origins
from headwater.gateway.time_slices import EVENT_BYTES, SLICE_BYTES, Slices
from headwater.http.request import Request
from headwater.http.response import BUSY, Problem, ProblemBody, Response
from headwater.http.routing.endpoint import Answer, Body, Endpoint
from headwater.http.routing.router import Router
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings

logger = logging.getLogger(__name__)

LOG_SECONDS = 60.0  # refusals for the same reason are logged once in this time
_LOGGED = {"too_deep", "too_many_keys"}


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
    403: "A page of another site sent it from a browser, or the API key is not for a namespace of the event.",
    413: "The decompressed body exceeds `gateway.max_body_bytes`.",
    415: "The Content-Type is not JSON in UTF-8, or the Content-Encoding is not supported.",
    422: "The `Idempotency-Key` was sent before, with another body.",
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
PREFLIGHT = tuple(
    Endpoint(
        method="OPTIONS",
        path=path,
        operation_id=name,
        summary="Answer a browser's preflight request.",
        answers={204: Answer("The headers say whether the page may send.")},
    )
    for path, name in ((EVENT.path, "askLineageEvent"), (BATCH.path, "askLineageBatch"))
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
        self._max_body_bytes = settings.max_body_bytes
        self._max_failed_bytes = settings.max_failed_bytes
        self._clock = clock
        self._acknowledger = Acknowledger(log, metrics, self._problem_response)
        self._origins = Origins(settings.origins)
        self._keys = KeyNamespaces(settings.api_keys)
        self._slices = Slices()
        self._idempotency = IdempotencyKeys(settings.idempotency_seconds, clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._logged: dict[str, float] = {}
        self.limits = JsonLimits(settings, is_lineage=True)
        self.validator = Validator(strict=settings.strict)
        self.failed = FailedQueue(handler, self._handled, metrics, clock)
        self._received = metrics.counter("gateway_events_received")
        self._refused = metrics.counter("gateway_events_refused")
        self._warned = metrics.counter("gateway_events_warned")

    def add(self, router: Router) -> None:
        """Serve the endpoints."""
        router.serve(EVENT, self.post_event, before_body=self._admit)
        router.serve(BATCH, self.post_batch, before_body=self._admit)
        for endpoint in PREFLIGHT:
            router.serve(endpoint, self._origins.preflight)

    def reload(self, settings: GatewaySettings) -> None:
        """Bind the keys of these settings to their namespaces from now on."""
        self._keys = KeyNamespaces(settings.api_keys)

    def start(self) -> None:
        """Start the thread of the failed events; call it in the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self.failed.start()

    async def close(self, timeout_seconds: float) -> None:
        """Pass the last failed events to their handler."""
        await asyncio.to_thread(self.failed.close, timeout_seconds)

    def _admit(self, request: Request) -> Response | None:
        if (refusal := self._origins.refusal(request)) is not None:
            return refusal
        # The connection refuses it, by its length or when it has grown: it is counted and logged here.
        declared = int(request.headers.get("content-length", 0))
        if declared > self._max_body_bytes:
            self._too_large(request, f"its {declared} bytes exceed")
        elif "transfer-encoding" in request.headers:
            request.answered = partial(self._answered, request)
        return None

    def _answered(self, request: Request, response: Response) -> None:
        if response.status == 413 and request.arrived > self._max_body_bytes:
            self._too_large(request, "its chunks exceed")

    def _too_large(self, request: Request, text: str) -> None:
        self._received.add(1)
        self._refused.add(1, "body_too_large")
        self._log(request, "body_too_large", f"{text} gateway.max_body_bytes, and none of them is kept")

    def _is_repeated(self, request: Request) -> bool:
        """Return whether a request with an Idempotency-Key is answered already."""
        try:
            return self._idempotency.is_repeated(request, request.headers.get("authorization", ""))
        except Problem as problem:
            self._received.add(1)
            self._refuse(request, b"", problem)
            return True

    def post_event(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Store one event."""
        if "idempotency-key" in request.headers and self._is_repeated(request):
            return None
        if self._slices.busy:  # perhaps with a batch of the same connection, which comes first
            return self._slices.run(request, self._post_event_later(request))
        self._post_event(request)
        return None

    def _post_event_later(self, request: Request) -> Iterator[None]:
        self._post_event(request)
        yield from ()

    def _post_event(self, request: Request) -> None:
        self._received.add(1)
        body = b""
        try:
            body = self.limits.read_body(request)
            event = self.limits.parse_event(body)
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
        namespaces = self._keys.of(request)
        if namespaces is not None and (foreign := namespaces.foreign(event)) is not None:
            self._refuse(request, b"", _not_for_key(foreign))
            return
        response = _ACCEPTED
        if validation.warnings:
            self._warned.add()
            response = Response(200, msgspec.json.encode(Accepted("success", validation.warnings)))
        self._acknowledger.store(request, [body], self._readable(request, response))

    def post_batch(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Store the compliant events of an array; the others are listed and affect no other event (G6)."""
        if "idempotency-key" in request.headers and self._is_repeated(request):
            return None
        return self._slices.run(request, self._post_batch(request))

    def _post_batch(self, request: Request) -> Iterator[None]:
        body = b""
        try:
            body = self.limits.read_body(request)
            parts = self.limits.split_batch(body)
        except Problem as problem:
            self._received.add(1)
            self._refuse(request, body, problem)
            return
        request.reserve(len(body))  # the events are copies of its parts
        self._received.add(len(parts))
        compliant: list[bytes] = []
        not_stored: list[FailedInBatch] = []
        failed: list[FailedEvent] = []
        codes: list[str] = []
        budget, namespaces = Budget(), self._keys.of(request)
        work = 0
        for index, part in enumerate(parts):
            if work > SLICE_BYTES:
                work = 0
                yield
            event_body, event, found = self.limits.parse_part(part)
            before = budget.left
            violations: Sequence[Violation] = ()
            if found is None:
                validation = self.validator.check(event, budget)
                if validation.warnings:
                    self._warned.add()
                if validation.errors:
                    violations = validation.errors
                    found = Problem(400, "not_compliant", validation.summary, hint="Fix the producer.")
                elif namespaces is not None and (foreign := namespaces.foreign(event)) is not None:
                    found = _not_for_key(foreign)
            work += len(event_body) + EVENT_BYTES + before - budget.left
            if found is None:
                compliant.append(event_body)
                continue
            codes.append(found.code)
            not_stored.append(FailedInBatch(index, found.text))
            if found.status != 403:  # it was answered that nothing of it is stored
                failed.append(self._failed_event(event_body, found.text, violations, namespaces))
        if failed and self.failed.is_full:
            self._refused.add(len(parts), "busy")
            request.respond(self._readable(request, BUSY))
            return
        for code in codes:
            self._refused.add(1, code)
        result = Response(200, msgspec.json.encode(_result(len(parts), not_stored)))
        response = self._readable(request, result)

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
        """Answer with a problem, after the handler has what could be read of the body."""
        if body and self.failed.is_full:
            self._refused.add(1, "busy")
            request.respond(self._readable(request, BUSY))
            return
        self._refused.add(1, problem.code)
        if body or isinstance(problem, UnreadableBody):
            failed = self._failed_event(body, problem.text, violations, self._keys.of(request))
            self.failed.put([failed], (request, self._problem_response(problem, request)))
        else:
            request.respond(self._problem_response(problem, request))
        if problem.status in (403, 413) or problem.code in _LOGGED:
            self._log(request, problem.code, problem.text)

    def _log(self, request: Request, code: str, text: str) -> None:
        """Log a refusal by a setting: perhaps the producer is right, and the setting is wrong."""
        now = self._clock.monotonic()
        if now - self._logged.get(code, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged[code] = now
            logger.warning(
                "A lineage request of %s was refused (%s): %s", request.peer, code, printable_line(text)
            )

    def _readable(self, request: Request, response: Response) -> Response:
        """Return the response with the headers with which a page of an allowed origin may read it."""
        if not (own := self._origins.cors(request)):
            return response
        return Response(response.status, response.body, headers={**response.headers, **own})

    def _problem_response(self, problem: Problem, request: Request) -> Response:
        return self._readable(request, problem.response())

    def _failed_event(
        self, body: bytes, reason: str, violations: Sequence[Violation], bound: Namespaces | None
    ) -> FailedEvent:
        kept = body[: self._max_failed_bytes]
        patterns = bound.patterns if bound is not None else ()
        return FailedEvent(kept, reason, list(violations), self._clock.now(), len(body), patterns)

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


def _not_for_key(namespace: str) -> Problem:
    shown = namespace if len(namespace) <= ECHO else namespace[: ECHO - 1] + "…"
    return Problem(
        403,
        "namespace_not_allowed",
        f"The API key is not for the namespace {shown!r}; nothing of the event was stored.",
        hint="Use the key of this namespace, or add it to the key's `namespaces` in `gateway.api_keys`.",
    )


def _respond_all(answers: list[tuple[Request, Response]]) -> None:
    for request, response in answers:
        request.respond(response)


def _result(received: int, rejected: list[FailedInBatch]) -> BatchResult:
    failed = len(rejected)
    summary = BatchSummary(received, received - failed, failed, 0, failed)
    return BatchResult("partial_success" if rejected else "success", summary, rejected)


def _json(violations: Sequence[Violation]) -> list[dict[str, str]]:
    return [msgspec.structs.asdict(violation) for violation in violations]
