"""The gateway as a whole: listens, serves, stops without losing anybody's answer."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, SettingsError
from headwater.gateway.app import App
from headwater.gateway.failed_events import load_handler, replay
from headwater.http.connection import Connection, Wire
from headwater.http.router import Routes
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings, TlsSettings

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

BACKLOG = 1024  # connections that the kernel holds for us while the loop is busy
SWEEP_SECONDS = 0.25  # deadlines are kept to this precision
REPLAY_SECONDS = 1.0  # pause between two looks at the rejects
HANDSHAKE_SECONDS = 10.0  # for TLS


class Gateway:
    """Where events come in. It owns neither the log nor the rejects: close it first, then those.

    Runs on any asyncio loop; uvloop is the one it is tested on. `health` tells why something that should move
    does not, for /readyz. Further routes may be added to `routes` before `start`.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        log: Log,
        rejects: RejectStore,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]] = list,
        openmetrics: bool = True,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._settings = settings
        self._log = log
        self._rejects = rejects
        handler = load_handler(settings.failed_events, rejects)
        self._app = App(settings, log, handler, metrics, health=health, openmetrics=openmetrics, clock=clock)
        app = self._app
        self._wire = Wire(settings, clock, admit=app.admit, handle=app.handle, answered=app.answered)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._replayer: asyncio.Task[None] | None = None
        self.port = settings.port
        metrics.gauge("gateway_connections").set(lambda: len(self._wire.connections))
        metrics.gauge("gateway_pending_bytes").set(lambda: self._wire.pending_bytes)

    @property
    def routes(self) -> Routes:
        """The table of routes, for stages that add theirs."""
        return self._app.routes

    async def start(self) -> None:
        """Listen. `.port` is the real port afterwards, also where the settings said 0."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        context = _context(settings.tls) if settings.tls is not None else None
        try:
            self._server = await loop.create_server(
                lambda: Connection(self._wire),
                settings.host,
                settings.port,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context is not None else None,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise HeadwaterError(
                f"The gateway cannot listen on {settings.host}:{settings.port}: {error}.",
                hint="Free the port, or set `gateway.host` and `gateway.port`.",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._app.start(loop)
        self._sweep()
        self._replayer = loop.create_task(self._replay())

    async def close(self) -> None:
        """Stop listening, refuse what is new, let what is under way be committed and answered.

        Takes at most `shutdown_timeout_seconds`; connections that are left then are cut.
        """
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        server, self._server = self._server, None
        deadline = loop.time() + self._settings.shutdown_timeout_seconds
        server.close()
        self._wire.stop()
        await self._wire.emptied(self._settings.shutdown_timeout_seconds)
        for connection in list(self._wire.connections):
            connection.cut()
        if self._replayer is not None:
            self._replayer.cancel()
            await asyncio.gather(self._replayer, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._app.close(max(1.0, deadline - loop.time()))
        await asyncio.sleep(0)  # let the loop tell the connections that they are closed

    def _sweep(self) -> None:
        self._wire.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    async def _replay(self) -> None:
        while True:
            await asyncio.sleep(REPLAY_SECONDS)
            try:
                await asyncio.to_thread(replay, self._rejects, self._app.validator, self._log)
            except Exception:
                log.exception("The replay of rejects failed; it is tried again.")


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.client_ca:
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise SettingsError([f"`gateway.tls` cannot be used: {error}"]) from error
    return context
