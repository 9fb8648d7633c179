"""The application: what each route does with a request, and when it is answered.

The way of an event, in one thread without a pause: intake, validation, `Log.append`. The log's thread calls
back once per group commit, and all answers of the group go out together (G1).

Where the time of a 2 KB event goes, in microseconds of CPU: without sockets and disk 33, of which 12 are the
JSON made and unmade, 7 the schema, 2 counting brackets, 12 the wire and the routes. A running server takes
75 to 80 in this thread, some 15 of them in the kernel, and 15 in the log's; why the same code takes longer
there is not known, but even without the log it does. Handing over in smaller portions, a shorter switch
interval, garbage collection off, and quicker compression made no difference above a busy machine's noise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import orjson

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.gateway.failed_events import FailedEvent, FailedEventHandler, FailedQueue
from headwater.gateway.json_limits import Intake, NotJson
from headwater.gateway.openapi.document import describe
from headwater.gateway.openlineage.validator import Validator, Violation
from headwater.http import refusals
from headwater.http.auth import Access
from headwater.http.request import Request
from headwater.http.response import Problem, Response, problem_of
from headwater.http.router import Route, Routes
from headwater.log.queue.log import Log
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings

__all__ = ["App"]

log = logging.getLogger(__name__)

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ACCEPTED = Response(200, b'{"status":"success"}')
_STATUS_TEXT = {status: str(status) for status in range(100, 600)}


class _Waiting(NamedTuple):
    """A request whose events are on their way to disk, and what it is answered when they are there."""

    request: Request
    response: Response
    events: int
    failed: Sequence[FailedEvent] = ()


class App:
    """Routes and answers. All of it runs in the loop's thread, but for `_committed` and `_handled`."""

    def __init__(
        self,
        settings: GatewaySettings,
        log: Log,
        handler: FailedEventHandler,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]],
        openmetrics: bool,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._log = log
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._intake = Intake(settings)
        self._access = Access(settings.api_keys)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered: list[tuple[Sequence[bytes], _Waiting]] = []
        self.validator = Validator(strict=settings.strict)
        self.failed = FailedQueue(handler, self._handled, metrics, clock)
        self._requests = metrics.counter("gateway_requests")
        self._seconds = metrics.histogram("gateway_request_seconds")
        self._received = metrics.counter("gateway_events_received")
        self._accepted = metrics.counter("gateway_events_accepted")
        self._refused = metrics.counter("gateway_events_refused")
        self._warned = metrics.counter("gateway_events_warned")
        self.routes = Routes()
        self.routes.add("POST", "/api/v1/lineage", self._lineage)
        self.routes.add("POST", "/api/v1/lineage/batch", self._batch)
        self.routes.add("GET", "/healthz", self._healthz, is_open=True)
        self.routes.add("GET", "/readyz", self._readyz, is_open=True)
        self.routes.add("GET", "/openapi.json", self._openapi, is_open=True)
        if openmetrics:
            self.routes.add("GET", "/metrics", self._metrics_text)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on answers are written by this loop."""
        self._loop = loop
        self.failed.start()

    async def close(self, timeout_seconds: float) -> None:
        """Hand over the last failed events, end what coroutines are left."""
        await asyncio.to_thread(self.failed.close, timeout_seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what the wire calls -------------------------------------------------------------------------

    def admit(self, request: Request) -> Response | None:
        """At the end of the headers: the answer that does not depend on the body, if there is one."""
        try:
            return self._admit(request)
        except Exception:  # nobody below would tell it from HTTP that is broken
            return self._fault(request)

    def _admit(self, request: Request) -> Response | None:
        found = self.routes.find(request)
        if isinstance(found, Response):
            return found
        request.route = found
        if not found.is_open and not self._access.allows(request.headers.get("authorization")):
            return self._access.refusal
        return found.admit(request) if found.admit is not None else None

    def handle(self, request: Request) -> None:
        """A whole request. Whatever happens, it is answered."""
        route: Route = request.route
        try:
            coroutine = route.handler(request)
            if coroutine is not None:
                self._spawn(request, coroutine)
        except Problem as problem:
            request.respond(problem.response())
        except Exception:
            request.respond(self._fault(request))

    def answered(self, request: Request, status: int) -> None:
        """Count an answer."""
        route = request.route.path if request.route is not None else ""
        self._requests.add(1, route, _STATUS_TEXT[status])
        if request.finished_at:
            self._seconds.observe(self._clock.monotonic() - request.finished_at, route)

    def _spawn(self, request: Request, coroutine: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await coroutine
            except Problem as problem:
                request.respond(problem.response())
            except ConnectionError:
                pass  # the client went away in the middle of a stream; nobody is left to be told
            except Exception:
                request.respond(self._fault(request))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fault(self, request: Request) -> Response:
        log.exception("The gateway failed on %s %s.", request.method, ascii(request.path[:200]))
        return Problem(
            500,
            "internal",
            "The gateway failed on this request; nothing was acknowledged.",
            hint="Look at its log, and tell us.",
            retryable=True,
        ).response()

    # --- events --------------------------------------------------------------------------------------

    def _lineage(self, request: Request) -> None:
        body = self._event_body(request)
        try:
            event = self._intake.one(body)
        except NotJson as problem:
            self._fail(request, [self._failed(body, problem.text, ())], problem)
            return
        except Problem as problem:
            self._refused.add(1, problem.code)
            raise
        verdict = self.validator.check(event)
        if verdict.errors:
            refusal = Problem(
                400,
                "not_compliant",
                verdict.reason,
                hint="Mend the producer; `violations` names each place. The event was given to the "
                "failed-event handler.",
                violations=verdict.errors,
            )
            self._fail(request, [self._failed(body, refusal.text, verdict.errors)], refusal)
            return
        response = _ACCEPTED
        if verdict.warnings:
            self._warned.add()
            told = [_told(warning) for warning in verdict.warnings]
            response = Response(200, orjson.dumps({"status": "success", "warnings": told}))
        self._append([body], _Waiting(request, response, 1))

    def _batch(self, request: Request) -> None:
        body = self._event_body(request, count=0)
        try:
            items = self._intake.many(body)
        except NotJson as problem:
            self._received.add(1)
            self._fail(request, [self._failed(body, problem.text, ())], problem)
            return
        request.hold(len(body))  # splitting has copied it
        self._received.add(len(items))
        bodies: list[bytes] = []
        failed: list[FailedEvent] = []
        told: list[dict[str, object]] = []
        for index, item in enumerate(items):
            violations: Sequence[Violation] = ()
            if item.problem is not None:
                reason, code = item.problem.text, item.problem.code
                is_kept = isinstance(item.problem, NotJson)
            else:
                verdict = self.validator.check(item.event)
                if verdict.ok:
                    bodies.append(item.body)
                    self._warned.add(1 if verdict.warnings else 0)
                    continue
                reason, code, is_kept = verdict.reason, "not_compliant", True
                violations = verdict.errors
            self._refused.add(1, code)
            told.append({"index": index, "reason": reason, "retriable": False})
            if is_kept:
                failed.append(self._failed(item.body, reason, violations))
        if failed and self.failed.is_full:
            request.respond(refusals.BUSY)
            return
        response = Response(200, orjson.dumps(_summary(len(items), told)))
        waiting = _Waiting(request, response, len(bodies), failed)
        if bodies:
            self._append(bodies, waiting)
        else:
            self._conclude(waiting)

    def _event_body(self, request: Request, count: int = 1) -> bytes:
        self._received.add(count)
        try:
            return self._intake.body(request)
        except Problem as problem:
            self._refused.add(1, problem.code)
            raise

    def _failed(self, body: bytes, reason: str, violations: Sequence[Violation]) -> FailedEvent:
        cut = body[: self._settings.max_event_bytes]
        return FailedEvent(cut, reason, list(violations), self._clock.now())

    def _fail(self, request: Request, failed: Sequence[FailedEvent], problem: Problem) -> None:
        self._refused.add(len(failed), problem.code)
        if self.failed.is_full:
            request.respond(refusals.BUSY)
            return
        self.failed.put(failed, _Waiting(request, problem.response(), 0))

    # --- the way to the disk and back ----------------------------------------------------------------

    def _append(self, bodies: Sequence[bytes], waiting: _Waiting) -> None:
        # Handed over together, when the loop has been through all sockets that were ready. Woken by the first
        # of them, the writer's thread would fight this one for the interpreter's lock all the while.
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._gathered.append((bodies, waiting))

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        try:
            self._log.append_all(gathered, self._committed)
        except HeadwaterError as error:
            self._give_back([waiting for _, waiting in gathered], error)

    def _committed(self, waiting: list[_Waiting], error: HeadwaterError | None) -> None:
        """Called by the log's thread: one step over to the loop for the whole group."""
        if error is None:
            self._in_loop(self._acknowledge, waiting)
        else:
            self._in_loop(self._give_back, waiting, error)

    def _handled(self, waiting: list[_Waiting]) -> None:
        """Called by the thread of the failed events."""
        self._in_loop(self._answer, waiting)

    def _in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody is connected any more; what was committed stays committed

    def _acknowledge(self, waiting: list[_Waiting]) -> None:
        self._accepted.add(sum(each.events for each in waiting))
        for each in waiting:
            self._conclude(each)

    def _conclude(self, waiting: _Waiting) -> None:
        if waiting.failed:
            self.failed.put(waiting.failed, waiting)
        else:
            waiting.request.respond(waiting.response)

    def _answer(self, waiting: list[_Waiting]) -> None:
        for each in waiting:
            each.request.respond(each.response)

    def _give_back(self, waiting: list[_Waiting], error: HeadwaterError) -> None:
        problem = problem_of(error)
        response = problem.response()
        for each in waiting:
            self._refused.add(each.events, problem.code)
            each.request.respond(response)

    # --- what operators ask --------------------------------------------------------------------------

    def _healthz(self, request: Request) -> None:
        request.respond(Response(200, b'{"status":"alive"}'))

    def _readyz(self, request: Request) -> None:
        reasons = [] if self._log.healthy else ["log: the last commit failed"]
        reasons += ["failed events: the handler is far behind"] if self.failed.is_full else []
        try:
            reasons += self._health()
        except Exception as error:
            log.exception("The health of the outlets could not be asked.")
            reasons.append(f"health: {type(error).__name__}")
        content = orjson.dumps({"ready": not reasons, "reasons": reasons})
        request.respond(Response(503 if reasons else 200, content))

    def _metrics_text(self, request: Request) -> None:
        text = self._metrics.openmetrics().encode()
        request.respond(Response(200, text, content_type=OPENMETRICS))

    def _openapi(self, request: Request) -> None:
        routes = self.routes
        found = describe(routes.paths, further_paths=routes.described, further_schemas=routes.schemas)
        request.respond(Response(200, orjson.dumps(found)))


def _told(violation: Violation) -> dict[str, str]:
    return {"path": violation.path, "reason": violation.reason, "rule": violation.rule}


def _summary(received: int, failed: list[dict[str, object]]) -> dict[str, object]:
    return {
        "status": "partial_success" if failed else "success",
        "summary": {
            "received": received,
            "successful": received - len(failed),
            "failed": len(failed),
            "retriable": 0,
            "non_retriable": len(failed),
        },
        "failed_events": failed,
    }
