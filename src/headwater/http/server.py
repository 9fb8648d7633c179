"""Listens, limits all connections together, and passes requests to the router's handlers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from email.utils import formatdate
from typing import Any

from headwater.clock import Clock
from headwater.errors import HeadwaterError, SettingsError
from headwater.http.admission import Admission, Peer
from headwater.http.auth import BearerKeys
from headwater.http.connection import Connection
from headwater.http.handshake import Handshake
from headwater.http.request import Request
from headwater.http.response import Problem, Response, body_too_large
from headwater.http.routing.router import Router
from headwater.http.wrong_key_delay import WrongKeys
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings, TlsSettings
from headwater.system.network import ClientAddresses, address_block

logger = logging.getLogger(__name__)

BACKLOG = 1024  # connections that the kernel holds while the loop is busy
DEADLINE_SECONDS = 0.25  # precision of the deadlines
SCARCE = 0.75  # of `max_pending_bytes`: beyond it requests must arrive within HURRY_SECONDS
_STATUS_TEXT = {status: str(status) for status in range(100, 600)}


class HttpServer:
    """An HTTP/1.1 server on any asyncio loop.

    Bytes of requests in memory (`pending_bytes`) and open connections are limited over all connections (G8).
    """

    def __init__(self, settings: GatewaySettings, router: Router, metrics: Metrics, clock: Clock) -> None:
        self.settings = settings
        self.router = router
        self.port = settings.port
        self.monotonic = clock.monotonic
        self.admission = Admission(settings)
        self.pending_bytes = 0
        self.is_stopping = False
        self.date = b""  # for the `Date` header
        self.body_too_large = body_too_large(settings.max_body_bytes)
        self._now = clock.now
        self._keys = BearerKeys(settings.key_texts)
        self._tls = tls_context(settings.tls) if settings.tls is not None else None
        self._wrong_keys = WrongKeys(clock)
        self._clients = ClientAddresses(settings.trusted_proxies)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._no_connections = asyncio.Event()
        self._responses = metrics.counter("gateway_requests")
        self._seconds = metrics.histogram("gateway_request_seconds")
        metrics.gauge("gateway_connections").set(lambda: len(self.admission))
        metrics.gauge("gateway_pending_bytes").set(lambda: self.pending_bytes)

    async def start(self) -> None:
        """Listen. `port` is the actual port afterwards, also if the settings say 0."""
        loop = asyncio.get_running_loop()
        settings = self.settings
        tls = self._tls
        try:
            self._listener = await loop.create_server(
                (lambda: Connection(self)) if tls is None else (lambda: Handshake(self, tls)),
                settings.host,
                settings.port,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
            raise HeadwaterError(
                f"The gateway cannot listen on {settings.host}:{settings.port}: {error}.",
                hint="Free the port, or set `gateway.host` and `gateway.port`.",
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._check_deadlines()

    def reload(self, settings: GatewaySettings) -> None:
        """Use the API keys of these settings from now on; nothing else changes."""
        self._keys.replace(settings.key_texts)

    async def stop(self, timeout_seconds: float) -> None:
        """Stop listening, answer new requests 503, and wait until all requests under way are answered.

        Connections that are left after `timeout_seconds` are aborted.
        """
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        self.is_stopping = True
        for connection in self.admission:
            connection.stop()
        if len(self.admission):
            try:
                await asyncio.wait_for(self._no_connections.wait(), timeout_seconds)
            except TimeoutError:
                for connection in self.admission:
                    connection.abort()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()

    async def close(self) -> None:
        """Cancel the handlers that have not ended; call it after `stop`."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # asyncio calls `connection_lost` of aborted connections in the next turn

    # --- called by connections ---------------------------------------------------------------------------

    def has_room(self, request: Request, more: int = 0) -> bool:
        """Return whether a request fits into memory with `more` bytes of its body.

        The head of one that is alone does not count, so that `max_body_bytes` may be `max_pending_bytes`.
        """
        pending, limit = self.pending_bytes, self.settings.max_pending_bytes
        return pending + more <= limit or (pending == request.size and request.body_bytes + more <= limit)

    def remove(self, connection: Peer) -> None:
        """Forget a connection that has ended."""
        self.admission.remove(connection)
        if self.is_stopping and not len(self.admission):
            self._no_connections.set()

    def seconds_to_slow(self, request: Request) -> float:
        """Count a wrong key; return how long its answer must wait."""
        client = self._clients.find(request.peer, request.headers.get("x-forwarded-for", ""))
        return self._wrong_keys.seconds_to_wait(address_block(client))

    def before_body(self, request: Request) -> Response | None:
        """Find the route when the headers have arrived; return the response if the body does not matter."""
        try:
            found = self.router.find(request)
            if isinstance(found, Response):
                return found
            request.route = found
            if not found.needs_no_key and not self._keys.allow(request.headers.get("authorization")):
                return self._keys.refusal
            return found.before_body(request) if found.before_body is not None else None
        except Exception:  # the parser would report this exception as malformed HTTP
            return _internal_error(request)

    def handle(self, request: Request) -> None:
        """Pass a complete request to its handler. It is answered even if the handler raises."""
        assert request.route is not None
        try:
            coroutine = request.route.handler(request)
            if coroutine is not None:
                task = asyncio.get_running_loop().create_task(_run(request, coroutine))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Problem as problem:
            request.respond(problem.response())
        except Exception:
            request.respond(_internal_error(request))

    def count_response(self, request: Request, status: int) -> None:
        """Count a response."""
        route = request.route.path if request.route is not None else ""
        self._responses.add(1, route, _STATUS_TEXT[status])
        if request.finished_at:
            self._seconds.observe(self.monotonic() - request.finished_at, route)

    # --- deadlines ---------------------------------------------------------------------------------------

    def _check_deadlines(self) -> None:
        """Expire connections: one timer for all of them costs less than a timer for each."""
        self.date = formatdate(self._now(), usegmt=True).encode()
        now = self.monotonic()
        is_full = self.admission.is_full
        is_scarce = is_full or self.pending_bytes > SCARCE * self.settings.max_pending_bytes
        for connection in self.admission:
            if connection.deadline <= now or (
                is_scarce and connection.is_slow(now, arriving_only=not is_full)
            ):
                connection.expire()
        self._deadline_timer = asyncio.get_running_loop().call_later(DEADLINE_SECONDS, self._check_deadlines)


async def _run(request: Request, coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        await coroutine
    except Problem as problem:
        request.respond(problem.response())
    except ConnectionError:
        request.connection.abort()  # the client has disconnected; a half-closed socket would stay open
    except Exception:
        request.respond(_internal_error(request))
    if request.stream is not None and not request.stream.has_ended:
        request.connection.abort()  # what was sent is not the whole response, and the client must see that


def _internal_error(request: Request) -> Response:
    logger.exception("The gateway failed on %s %s.", request.method, ascii(request.path[:200]))
    return Problem(
        500,
        "internal",
        "The gateway failed on this request; nothing was acknowledged.",
        hint="Report the traceback in the server's log as a bug.",
        retryable=True,
    ).response()


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a server; SettingsError if the files cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.client_ca:
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            [f"{settings.certificate}, {settings.key} of `gateway.tls` cannot be used: {error}"]
        ) from error
    return context
