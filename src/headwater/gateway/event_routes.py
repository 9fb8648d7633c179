"""POST /api/v1/event(s), /s2s/event(s) and /events/bulk: events of browsers and servers for the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.gateway.acknowledger import Acknowledger
from headwater.gateway.context import Context, request_context
from headwater.gateway.idempotency import BrowserEvents, FirstRequest, IdempotencyKeys, respond_after
from headwater.gateway.json_limits import JsonLimits
from headwater.gateway.senders.origins import PREFLIGHT_HEADERS, Origins, cors
from headwater.gateway.senders.tokens import Sender, Tokens
from headwater.gateway.time_slices import EVENT_BYTES, SLICE_BYTES, Slices
from headwater.http.request import Request
from headwater.http.response import BUSY_PROBLEM, Problem, Response
from headwater.http.routing.endpoint import Answer, Body, Endpoint
from headwater.http.routing.router import Router
from headwater.log.event_sink import EventSink
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings, TokenSettings
from headwater.system.network import ClientAddresses
from headwater.text_cache import text_cache

MAX_LISTED_PROBLEMS = 100  # refused events that an answer lists; it counts all of them
TEXT = ("text/plain",)  # sent by a browser's beacon, which then needs no preflight
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "text/plain")


class EventAccepted(msgspec.Struct):
    """The event is on disk."""

    status: Literal["ok"]


class RefusedEvent(msgspec.Struct, omit_defaults=True):
    """An event that was not stored, by its index in an array or its line."""

    error: str
    reason: str
    index: int | None = None
    line: int | None = None


class EventsResult(msgspec.Struct):
    """The accepted events are on disk; `problems` lists the first refused ones."""

    status: Literal["ok", "partial"]
    accepted: int
    refused: int
    problems: list[RefusedEvent]


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """Events that share the fields of a template."""

    template: dict[str, Any]
    events: list[dict[str, Any]]


_FROM_SERVER_PROBLEMS = {
    400: "The body cannot be read, or the event is not an object.",
    401: "The token is missing or unknown, or not for this endpoint.",
    403: "A page of another site sent it from a browser.",
    413: "The event, the decompressed body or the number of events exceeds its limit.",
    415: "The Content-Type is neither JSON in UTF-8 nor text, or the Content-Encoding is not supported.",
    422: "The `Idempotency-Key` was sent before, with another body.",
    429: "The token sends more events than `rate_limit_per_second` allows. `Retry-After` is set.",
    503: "The events cannot be written, or the gateway is busy or stopping; nothing was acknowledged.",
    507: "The disk is full; nothing was acknowledged.",
}
_FROM_BROWSER_PROBLEMS = _FROM_SERVER_PROBLEMS | {403: "The token does not allow pages of this origin."}


def _post(path: str, name: str, sender: str, problems: dict[int, str], security: tuple[str, ...]) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        operation_id=name,
        summary=f"Store one or several events of a {sender}; 200 means that they are on disk.",
        answers={
            200: Answer("On disk; for several events, with those refused.", [EventAccepted, EventsResult])
        },
        problems=problems,
        body=Body([dict[str, Any], list[dict[str, Any]], Envelope]),
        security=security,
    )


def _preflight(path: str, name: str) -> Endpoint:
    return Endpoint(
        method="OPTIONS",
        path=path,
        operation_id=name,
        summary="Answer a browser's preflight request.",
        answers={204: Answer("The headers say whether the page may send.")},
    )


FROM_BROWSERS = tuple(
    _post(path, name, "browser", _FROM_BROWSER_PROBLEMS, ("tokenQuery", "token"))
    for path, name in (("/api/v1/event", "postBrowserEvent"), ("/api/v1/events", "postBrowserEvents"))
)
PREFLIGHT = tuple(
    _preflight(path, name)
    for path, name in (("/api/v1/event", "askBrowserEvent"), ("/api/v1/events", "askBrowserEvents"))
)
FROM_SERVERS = tuple(
    _post(path, name, "server", _FROM_SERVER_PROBLEMS, ("token",))
    for path, name in (("/api/v1/s2s/event", "postServerEvent"), ("/api/v1/s2s/events", "postServerEvents"))
)
BULK = Endpoint(
    method="POST",
    path="/api/v1/events/bulk",
    operation_id="postBulk",
    summary="Store the events of a server, one JSON object a line; 200 means that they are on disk.",
    answers={200: Answer("The lines were read; `problems` lists those refused.", [EventsResult])},
    problems=_FROM_SERVER_PROBLEMS,
    body=Body([str], ("application/x-ndjson", "text/plain")),
    security=("token",),
)


_Begin = Callable[[Request], Iterator[None] | None]


class EventRoutes:
    """Takes events for the pipeline: token, parse, enrich, store, respond.

    Close the sink after the gateway.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        tokens: Sequence[TokenSettings],
        sink: EventSink,
        metrics: Metrics,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limits = settings
        self._tokens = Tokens(tokens, self._clock)
        self._json = JsonLimits(settings)
        self._origins = Origins(settings.origins)
        self._addresses = ClientAddresses(settings.trusted_proxies)
        self._acknowledger = Acknowledger(sink, metrics, with_cors)
        self._slices = Slices()
        self._browser_events = BrowserEvents(settings.idempotency_seconds, self._clock)
        self._keys = IdempotencyKeys(settings.idempotency_seconds, self._clock)
        self._repeated = metrics.counter("gateway_events_repeated")
        self._object = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._received = metrics.counter("gateway_events_received")
        self._refused = metrics.counter("gateway_events_refused")

    def add(self, router: Router) -> None:
        """Serve the endpoints."""
        for endpoint in FROM_BROWSERS:
            router.serve(endpoint, self.post_events, before_body=self._admit_browser)
        for endpoint in PREFLIGHT:
            router.serve(endpoint, self.answer_preflight)
        for endpoint in FROM_SERVERS:
            router.serve(endpoint, self.post_events, before_body=self._admit_server)
        router.serve(BULK, self.post_lines, before_body=self._admit_server)

    def reload(self, tokens: Sequence[TokenSettings]) -> None:
        """Accept these tokens from now on; those that have not changed keep their rate."""
        self._tokens.replace(tokens)

    # --- before the body --------------------------------------------------------------------------------

    def answer_preflight(self, request: Request) -> None:
        """Answer whether a page may send. A preflight has none of our headers, at most the query."""
        origin = request.headers.get("origin", "")
        sender = self._tokens.sender(request)
        asked = [sender.token] if sender is not None else self._tokens.all
        headers: dict[str, str] = {}
        if origin and any(token.allows(origin) for token in asked):
            headers = PREFLIGHT_HEADERS | cors(origin)
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
        if (refusal := self._origins.refusal(request)) is not None:
            return refusal
        sender = self._tokens.sender(request)
        if sender is None:
            return _unauthorized("Send the server secret as `X-Auth-Token` or `Authorization: Bearer`.")
        if not sender.is_server:
            return _unauthorized("This is a browser's secret: use the token's `server_secret` here.")
        return self._admit(request, sender)

    def _admit(self, request: Request, sender: Sender) -> Response | None:
        request.caller = sender
        if wait := sender.token.rate_limit.seconds_to_wait():
            problem = Problem(
                429,
                "rate_limited",
                f"The token `{sender.token.id}` sends more than `rate_limit_per_second` allows.",
                hint=f"Send it again after {wait} s, or raise the limit.",
                retryable=True,
                headers={"Retry-After": str(wait)},
            )
            self._received.add(1)
            self._refused.add(1, problem.code)
            return with_cors(problem, request)
        return None

    # --- the body ------------------------------------------------------------------------------

    def post_events(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Store an object, an array of them, or `{"template": {…}, "events": […]}`."""
        return self._run(request, self._begin_events)

    def post_lines(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Store NDJSON; the last line may lack its newline. Empty lines are counted, but are not events."""
        return self._run(request, self._begin_lines)

    def _run(self, request: Request, begin: _Begin) -> Coroutine[Any, Any, None] | None:
        if self._slices.busy:  # perhaps with a request of the same connection, which comes first
            return self._slices.run(request, self._run_later(request, begin))
        steps = self._begin(request, begin)
        return self._slices.run(request, steps) if steps is not None else None

    def _run_later(self, request: Request, begin: _Begin) -> Iterator[None]:
        yield from self._begin(request, begin) or ()

    def _begin(self, request: Request, begin: _Begin) -> Iterator[None] | None:
        """Count a request that is refused as a whole, and let browsers read the reason."""
        try:
            if "idempotency-key" in request.headers and self._keys.is_repeated(request, _name(request)):
                return None
            return begin(request)
        except Problem as problem:
            self._received.add(1)
            self._refused.add(1, problem.code)
            request.respond(with_cors(problem, request))
            return None

    def _begin_events(self, request: Request) -> Iterator[None] | None:
        body = self._json.read_body(request, TEXT)
        template, parts = self._envelope(body)
        context = self._context(request)
        if parts is None:
            self._json.parse_event(body)
            line, has_id = context.enrich(body)
            self._received.add(1)
            response = _accepted(_origin(request))
            if has_id and self._may_be_repeated(request):
                earlier = self._claim(request, FirstRequest(), body)
                if earlier is not None:
                    self._repeated.add(1)
                    respond_after([earlier], request, response)
                    return None
            self._store(request, [line], response)
            return None
        self._reserve(request, len(body), (len(template) + context.size) * len(parts))
        self._received.add(len(parts))
        return self._store_valid(
            request, enumerate(parts), "index", lambda event: context.enrich(event, template)
        )

    def _begin_lines(self, request: Request) -> Iterator[None]:
        body = self._json.read_body(request, LINES)
        if body.count(b"\n") > self._limits.max_batch_events:
            raise self._json.too_many_events()
        context = self._context(request)
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        self._reserve(request, len(body), context.size * len(lines))
        self._received.add(len(lines))
        return self._store_valid(request, lines, "line", context.enrich)

    @staticmethod
    def _reserve(request: Request, body_bytes: int, added_bytes: int) -> None:
        """Count the memory of stored events: they are copies, and each grows by fields of the request."""
        if not request.connection.server.has_room(request, added_bytes):
            raise BUSY_PROBLEM
        request.reserve(body_bytes + added_bytes)

    def _store_valid(
        self,
        request: Request,
        parts: Iterable[tuple[int, bytes | msgspec.Raw]],
        place: Literal["index", "line"],
        enrich: Callable[[bytes], tuple[bytes, bool]],
    ) -> Iterator[None]:
        """Store the valid events; the others are listed by their place and affect no other event (G6)."""
        bodies: list[bytes] = []
        refused: list[RefusedEvent] = []
        earlier: list[FirstRequest] = []  # requests that have some of these events
        first = FirstRequest() if self._may_be_repeated(request) else None
        accepted = work = 0
        for number, part in parts:
            if work > SLICE_BYTES:
                work = 0
                yield
            event = self._json.parse_part(part)
            work += len(event.body) + EVENT_BYTES
            try:
                if event.problem is not None:
                    raise event.problem
                line, has_id = enrich(event.body)
                accepted += 1
                if has_id and first and (found := self._claim(request, first, event.body)) is not None:
                    self._repeated.add(1)
                    earlier.append(found)
                else:
                    bodies.append(line)
            except Problem as problem:
                self._refused.add(1, problem.code)
                refused.append(RefusedEvent(problem.code, problem.text, **{place: number}))
        status: Literal["ok", "partial"] = "partial" if refused else "ok"
        result = EventsResult(status, accepted, len(refused), refused[:MAX_LISTED_PROBLEMS])
        response = Response(200, msgspec.json.encode(result), headers=cors(_origin(request)))
        if not bodies:
            respond_after(earlier, request, response)
        elif earlier:
            self._store(request, bodies, response, lambda: respond_after(earlier, request, response))
        else:
            self._store(request, bodies, response)

    def _store(
        self,
        request: Request,
        bodies: list[bytes],
        response: Response,
        then: Callable[[], None] | None = None,
    ) -> None:
        token = _sender(request).token
        token.rate_limit.spend(len(bodies))
        self._acknowledger.store(request, bodies, response, token_id=token.id, then=then)

    # --- repetitions -----------------------------------------------------------------------------------

    def _may_be_repeated(self, request: Request) -> bool:
        """Return whether events are known by their ids; an Idempotency-Key would have set `answered`."""
        return self._browser_events.is_on and request.answered is None and not _sender(request).is_server

    def _claim(self, request: Request, first: FirstRequest, body: bytes) -> FirstRequest | None:
        """Return the earlier request that has a browser's event; None if the event is new."""
        found = self._browser_events.claim(first, _sender(request).token.id, body)
        if found is None and request.answered is None:
            request.answered = first.answered
        return found

    def _context(self, request: Request) -> Context:
        address = self._addresses.find(request.peer, request.headers.get("x-forwarded-for", ""))
        return request_context(request, _sender(request), address, self._clock.now())

    def _envelope(self, body: bytes) -> tuple[bytes, Sequence[msgspec.Raw] | None]:
        """Return the template and the events of a body; None in place of the events for a single event."""
        template = events = b""
        if body[:1].isspace():
            body = body.lstrip()
        if body.startswith(b"["):
            events = body
        elif b'"template"' in body and b'"events"' in body:
            try:
                fields = self._object.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return b"", None  # `parse_event` says what is wrong with it
            if fields.keys() == {"template", "events"} and (raw := bytes(fields["events"])).startswith(b"["):
                template, events = bytes(fields["template"]), raw
                self._json.parse_event(template)
        if not events:
            return b"", None
        parts = self._json.split_batch(events)
        if len(template) * len(parts) > self._limits.max_body_bytes:
            raise Problem(
                413,
                "body_too_large",
                "With its template in every event, the body exceeds `gateway.max_body_bytes`.",
                hint="Send fewer events in one request.",
            )
        return template, parts


def with_cors(problem: Problem, request: Request) -> Response:
    """Return the response of a problem that the page which sent the request may read."""
    return problem.response(cors(_origin(request)))


def _sender(request: Request) -> Sender:
    assert isinstance(request.caller, Sender)
    return request.caller


def _name(request: Request) -> str:
    sender = _sender(request)
    return f"{'server' if sender.is_server else 'browser'} {sender.token.id}"


def _origin(request: Request) -> str:
    """Return the origin of the page that may read the answer; empty for servers."""
    return "" if _sender(request).is_server else request.headers.get("origin", "")


def _unauthorized(hint: str, origin: str = "") -> Response:
    headers = {"WWW-Authenticate": "Bearer"} | cors(origin)
    text = "The token is missing or unknown, or not for this endpoint."
    return Problem(401, "unauthorized", text, hint=hint, headers=headers).response()


@text_cache(1024)
def _accepted(origin: str) -> Response:
    return Response(200, msgspec.json.encode(EventAccepted("ok")), headers=cors(origin))
