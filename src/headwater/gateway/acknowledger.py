"""Stores the valid events of requests; a request is answered after the commit that holds its events (G1).

Refused events of the lineage routes take another way: `failed_events`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError, LogFull
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.log.event_sink import EventSink
from headwater.log.queue.log import Log
from headwater.metrics import Metrics


class _PendingRequest(NamedTuple):
    """A request whose events are being stored."""

    request: Request
    response: Response
    bodies: Sequence[bytes]
    token_id: str
    then: Callable[[], None] | None


class Acknowledger:
    """Stores the events of requests in a log or an event sink, and answers when they are on disk.

    Requests are collected until the end of the loop's turn and appended together. Appending each at once
    would wake the writer's thread in mid-turn, and it would compete with the loop for the interpreter's lock.
    There is no task per request: a task costs 3 µs, a tenth of the CPU time of an event.
    """

    def __init__(
        self,
        sink: Log | EventSink,
        metrics: Metrics,
        problem_response: Callable[[Problem, Request], Response] = lambda problem, _: problem.response(),
    ) -> None:
        self._sink = sink
        self._problem_response = problem_response
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: list[_PendingRequest] = []
        self._accepted = metrics.counter("gateway_events_accepted")
        self._refused = metrics.counter("gateway_events_refused")

    def store(
        self,
        request: Request,
        bodies: Sequence[bytes],
        response: Response,
        *,
        token_id: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Store events, then answer their request with `response`, or call `then`, which answers it instead.

        If they cannot be stored, the request is answered 503 or 507.
        """
        if not self._turn:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._flush_turn)
        self._turn.append(_PendingRequest(request, response, bodies, token_id, then))

    def _flush_turn(self) -> None:
        turn, self._turn = self._turn, []
        if isinstance(self._sink, Log):  # a log appends a turn in one call, other sinks one request
            try:
                self._sink.append_all([(pending.bodies, pending) for pending in turn], self._committed)
            except HeadwaterError as error:
                self._fail_requests(turn, error)
            return
        for pending in turn:
            try:
                self._sink.append(pending.token_id, pending.bodies, self._committed, pending)
            except HeadwaterError as error:
                self._fail_requests([pending], error)

    def _committed(self, pending: list[_PendingRequest], error: HeadwaterError | None) -> None:
        """Called by the sink's thread, once for the requests of a commit."""
        assert self._loop is not None
        if error is None:
            call_in_loop(self._loop, self._respond, pending)
        else:
            call_in_loop(self._loop, self._fail_requests, pending, error)

    def _respond(self, pending: list[_PendingRequest]) -> None:
        self._accepted.add(sum(len(each.bodies) for each in pending))
        for each in pending:
            if each.then is None:
                each.request.respond(each.response)
            else:
                each.then()

    def _fail_requests(self, pending: list[_PendingRequest], error: HeadwaterError) -> None:
        problem = storage_problem(error)
        for each in pending:
            self._refused.add(len(each.bodies), problem.code)
            each.request.respond(self._problem_response(problem, each.request))


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in the loop's thread, unless the loop is closed: then no client is connected."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass


def storage_problem(error: HeadwaterError) -> Problem:
    """Return the problem for an error of the log: 507 if the disk is full, otherwise 503 (G9)."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, LogFull):
        return Problem(
            507,
            "disk_full",
            error.text,
            hint=error.hint or "Free space on the disk of `data_dir`, then send it again.",
            retryable=True,
            headers={"Retry-After": "10"},
        )
    return Problem(
        503,
        "log_unavailable",
        error.text,
        hint=error.hint or "Nothing was acknowledged. Send it again.",
        retryable=True,
        headers={"Retry-After": "1"},
    )
