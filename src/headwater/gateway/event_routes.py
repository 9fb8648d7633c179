"""Events for the pipeline: the routes of browsers and of servers.

The way of an event, in one thread without a pause: token, intake, context enrichment, `Incoming.append` (or
`FanOut.append`, where destinations are in stream mode, or `Topics.append`, where Kafka is the log). The
thread of the token's file calls back once per group commit, and all answers go out together (G1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import orjson

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError
from headwater.gateway.context import Addresses, Context
from headwater.gateway.json_limits import Intake, Item, is_json
from headwater.gateway.tokens import Sender, Tokens
from headwater.http.request import Request
from headwater.http.response import Problem, Response, problem_of
from headwater.http.router import Routes
from headwater.log.event_sink import EventSink
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings, TokenSettings

__all__ = ["BROWSER_PATHS", "BULK_PATH", "SERVER_PATHS", "EventRoutes"]

BROWSER_PATHS = ("/api/v1/event", "/api/v1/events")
SERVER_PATHS = ("/api/v1/s2s/event", "/api/v1/s2s/events")
BULK_PATH = "/api/v1/events/bulk"
MAX_TOLD = 100  # refused events that an answer lists; it counts all of them
_OK = b'{"status":"ok"}'
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "text/plain")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": "Content-Type, Content-Encoding, X-Auth-Token, Authorization, api_key",
    "Access-Control-Max-Age": "86400",
}


class _Waiting(NamedTuple):
    """A request whose events are on their way to disk, and what it is answered when they are there."""

    request: Request
    response: Response
    events: int


class EventRoutes:
    """Adds the routes to a gateway before it starts. `incoming` must be closed after the gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        tokens: Sequence[TokenSettings],
        incoming: EventSink,
        metrics: Metrics,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limits = settings
        self._incoming = incoming
        self._tokens = Tokens(tokens, self._clock)
        self._intake = Intake(settings)
        self._addresses = Addresses(settings.trusted_proxies)
        self._split = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received = metrics.counter("gateway_events_received")
        self._accepted = metrics.counter("gateway_events_accepted")
        self._refused = metrics.counter("gateway_events_refused")

    def add(self, routes: Routes) -> None:
        """Serve them from now on."""
        for path in BROWSER_PATHS:
            routes.add("POST", path, self._guarded(self._events), is_open=True, admit=self._admit_browser)
            routes.add("OPTIONS", path, self._preflight, is_open=True)
        for path in SERVER_PATHS:
            routes.add("POST", path, self._guarded(self._events), is_open=True, admit=self._admit_server)
        routes.add("POST", BULK_PATH, self._guarded(self._bulk), is_open=True, admit=self._admit_server)

    # --- who may send --------------------------------------------------------------------------------

    def _preflight(self, request: Request) -> None:
        """A browser asks whether a page may send; it shows no header of ours, at most a query."""
        origin = request.headers.get("origin", "")
        sender = self._tokens.sender(request)
        asked = [sender.token] if sender is not None else self._tokens.all
        headers: dict[str, str] = {}
        if origin and any(token.allows(origin) for token in asked):
            headers = _PREFLIGHT | _cors(origin)
        request.respond(Response(204, headers={"Allow": "OPTIONS, POST"} | headers))

    def _admit_browser(self, request: Request) -> Response | None:
        origin = request.headers.get("origin", "")
        sender = self._tokens.sender(request)
        if sender is None:
            return _unauthorized("Send it as `?token=<client secret>` or as `X-Auth-Token`.", origin)
        if sender.is_server:
            return _unauthorized("This is a server's secret: keep it out of browsers and use /s2s/.", origin)
        if origin and not sender.token.allows(origin):
            return Problem(
                403,
                "origin_not_allowed",
                f"Pages of this origin may not send with the token `{sender.token.id}`.",
                hint="Add the origin to the token's `origins`.",
            ).response()
        return self._admit(request, sender)

    def _admit_server(self, request: Request) -> Response | None:
        sender = self._tokens.sender(request)
        if sender is None:
            return _unauthorized("Send the server secret as `X-Auth-Token` or `Authorization: Bearer`.")
        if not sender.is_server:
            return _unauthorized("This is a browser's secret: use the token's `server_secret` here.")
        return self._admit(request, sender)

    def _admit(self, request: Request, sender: Sender) -> Response | None:
        request.sender = sender
        if wait := sender.token.bucket.wait_seconds():
            problem = Problem(
                429,
                "rate_limited",
                f"The token `{sender.token.id}` sends more than `rate_limit_per_second` allows.",
                hint=f"Send it again after {wait} s, or raise the limit.",
                retryable=True,
                headers={"Retry-After": str(wait)},
            )
            self._refused.add(1, problem.code)
            return _told(problem, request)
        return None

    # --- what they send ------------------------------------------------------------------------------

    def _events(self, request: Request) -> None:
        """An object, an array, or `{"template": {…}, "events": […]}`."""
        body = self._body(request)
        template, items = self._envelope(body)
        context = Context.of(request, self._addresses, self._clock.now())
        if items is None:
            self._received.add(1)
            self._intake.one(body)
            request.sender.token.bucket.take(1)
            self._append(request, [context.enrich(body)], _accepted(_origin(request)))
            return
        self._received.add(len(items))
        request.hold(len(body) + len(template) * len(items))
        self._many(request, enumerate(items), "index", lambda event: context.enrich(event, template))

    def _bulk(self, request: Request) -> None:
        """NDJSON; the last line may lack its newline. Empty lines count as lines and not as events."""
        body = self._body(request, also=_LINES)
        if body.count(b"\n") > self._limits.max_batch_events:
            raise self._intake.too_many()
        context = Context.of(request, self._addresses, self._clock.now())
        lines = enumerate(body.split(b"\n"), 1)
        numbered = [(number, self._intake.item(line)) for number, line in lines if line.strip()]
        self._received.add(len(numbered))
        request.hold(len(body))
        self._many(request, numbered, "line", context.enrich)

    def _many(
        self,
        request: Request,
        items: Iterable[tuple[int, Item]],
        place: str,
        enrich: Callable[[bytes], bytes],
    ) -> None:
        """One that is wrong is told by its place and spoils no other (G6)."""
        bodies: list[bytes] = []
        refused: list[dict[str, object]] = []
        for number, item in items:
            try:
                if item.problem is not None:
                    raise item.problem
                bodies.append(enrich(item.body))
            except Problem as problem:
                self._refused.add(1, problem.code)
                refused.append({place: number, "error": problem.code, "reason": problem.text})
        request.sender.token.bucket.take(len(bodies))
        content = {
            "status": "partial" if refused else "ok",
            "accepted": len(bodies),
            "refused": len(refused),
            "problems": refused[:MAX_TOLD],
        }
        response = Response(200, orjson.dumps(content), headers=_cors(_origin(request)))
        if bodies:
            self._append(request, bodies, response)
        else:
            request.respond(response)

    def _body(self, request: Request, also: tuple[str, ...] = ("text/plain",)) -> bytes:
        """The decoded body. `text/plain` is what a browser's beacon sends, to save asking first."""
        content_type = request.headers.get("content-type")
        kind = (content_type or "").partition(";")[0].strip().lower()
        if content_type is not None and kind not in also and not is_json(content_type):
            raise Problem(
                415,
                "unsupported_media_type",
                "The Content-Type is neither JSON in UTF-8 nor one of " + ", ".join(also) + ".",
                hint="Send `Content-Type: application/json`, or `application/x-ndjson` in bulk.",
            )
        return self._intake.decoded(request)

    def _envelope(self, body: bytes) -> tuple[bytes, list[Item] | None]:
        """The template and the events of a body that holds several; no list for a single event."""
        template = events = b""
        if body[:1].isspace():
            body = body.lstrip()
        if body.startswith(b"["):
            events = body
        elif b'"template"' in body and b'"events"' in body:
            try:
                fields = self._split.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return b"", None  # whatever is wrong with it, intake says so
            if fields.keys() == {"template", "events"} and (raw := bytes(fields["events"])).startswith(b"["):
                template, events = bytes(fields["template"]), raw
                self._intake.one(template)
        if not events:
            return b"", None
        items = self._intake.many(events)
        if len(template) * len(items) > self._limits.max_body_bytes:
            raise Problem(
                413,
                "body_too_large",
                "With its template in every event, the body exceeds `gateway.max_body_bytes`.",
                hint="Send fewer events in one request.",
            )
        return template, items

    # --- the way to the disk and back ----------------------------------------------------------------

    def _guarded(self, handler: Callable[[Request], None]) -> Callable[[Request], None]:
        """Count what is refused as a whole, and tell browsers that they may read why."""

        def guarded(request: Request) -> None:
            try:
                handler(request)
            except Problem as problem:
                self._refused.add(1, problem.code)
                request.respond(_told(problem, request))

        return guarded

    def _append(self, request: Request, bodies: list[bytes], response: Response) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        waiting = _Waiting(request, response, len(bodies))
        try:
            self._incoming.append(request.sender.token.id, bodies, self._committed, waiting)
        except HeadwaterError as error:
            self._give_back([waiting], error)

    def _committed(self, waiting: list[_Waiting], error: HeadwaterError | None) -> None:
        """Called by the thread of the file: one step over to the loop for the whole group."""
        assert self._loop is not None
        arguments: tuple[Any, ...] = (self._acknowledge, waiting)
        if error is not None:
            arguments = (self._give_back, waiting, error)
        try:
            self._loop.call_soon_threadsafe(*arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody is connected any more; what was committed stays committed

    def _acknowledge(self, waiting: list[_Waiting]) -> None:
        self._accepted.add(sum(each.events for each in waiting))
        for each in waiting:
            each.request.respond(each.response)

    def _give_back(self, waiting: list[_Waiting], error: HeadwaterError) -> None:
        problem = problem_of(error)
        for each in waiting:
            self._refused.add(each.events, problem.code)
            each.request.respond(_told(problem, each.request))


def _origin(request: Request) -> str:
    """The page that a browser must be told that it may read the answer; none for servers."""
    sender: Sender = request.sender
    return "" if sender.is_server else request.headers.get("origin", "")


def _told(problem: Problem, request: Request) -> Response:
    plain = problem.headers
    try:
        problem.headers = {**plain, **_cors(_origin(request))}
        return problem.response()
    finally:
        problem.headers = plain  # it may be told to several requests


def _unauthorized(hint: str, origin: str = "") -> Response:
    headers = {"WWW-Authenticate": "Bearer"} | _cors(origin)
    text = "The token is missing or unknown, or not for this route."
    return Problem(401, "unauthorized", text, hint=hint, headers=headers).response()


def _cors(origin: str) -> dict[str, str]:
    # a header's value goes back into a header: only what an origin can be
    if not origin or not origin.isascii() or not origin.isprintable() or len(origin) > 512:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


@lru_cache(1024)
def _accepted(origin: str) -> Response:
    return Response(200, _OK, headers=_cors(origin))
