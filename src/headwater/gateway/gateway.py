"""The gateway: wires the routes to the log, and starts and stops in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headwater.clock import Clock, SystemClock
from headwater.gateway import event_routes, lineage_routes, operator_routes
from headwater.gateway.failed_events import load_handler
from headwater.gateway.lineage_routes import LineageRoutes
from headwater.gateway.operator_routes import add_operator_routes
from headwater.gateway.replay import replay
from headwater.http.auth import OperatorAccess
from headwater.http.routing.router import Router
from headwater.http.server import HttpServer
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings

logger = logging.getLogger(__name__)

ENDPOINTS = (
    lineage_routes.EVENT,
    lineage_routes.BATCH,
    *lineage_routes.PREFLIGHT,
    *event_routes.FROM_BROWSERS,
    *event_routes.PREFLIGHT,
    *event_routes.FROM_SERVERS,
    event_routes.BULK,
    operator_routes.HEALTH,
    operator_routes.READINESS,
    operator_routes.METRICS,
    operator_routes.DESCRIPTION,
)
REPLAY_SECONDS = 1.0  # pause between two looks for rejects to replay


class Gateway:
    """Takes events in. Close it before the log and the rejects, which it does not own.

    `health` returns the reasons for which /readyz answers 503. Other stages add their routes to `router`
    before `start`.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        log: Log,
        rejects: RejectStore,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]] = list,
        clock: Clock | None = None,
        replay_seconds: float = REPLAY_SECONDS,
    ) -> None:
        clock = clock or SystemClock()
        self._settings = settings
        self._log = log
        self._rejects = rejects
        self._health = health
        self._replay_seconds = replay_seconds
        self._replayer: asyncio.Task[None] | None = None
        self.router = Router()
        self._server = HttpServer(settings, self.router, metrics, clock)
        handler = load_handler(settings.failed_events, rejects)
        self._lineage = LineageRoutes(settings, log, handler, metrics, clock)
        self._lineage.add(self.router)
        self._operators = OperatorAccess(settings)
        add_operator_routes(self.router, metrics, self._operators, self._unready_reasons)

    @property
    def port(self) -> int:
        """The port that the gateway listens on."""
        return self._server.port

    def reload(self, settings: GatewaySettings) -> None:
        """Use the keys and the admin token of these settings from now on; nothing else changes."""
        self._server.reload(settings)
        self._lineage.reload(settings)
        self._operators.reload(settings)

    async def start(self) -> None:
        """Listen."""
        await self._server.start()
        self._lineage.start()
        self._replayer = asyncio.get_running_loop().create_task(self._replay())

    async def close(self) -> None:
        """Stop listening, answer the requests under way after their commit, then stop the failed events.

        Takes at most about `shutdown_timeout_seconds`; connections that are left then are aborted.
        """
        if self._replayer is None:
            return
        replayer, self._replayer = self._replayer, None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.shutdown_timeout_seconds
        await self._server.stop(self._settings.shutdown_timeout_seconds)
        replayer.cancel()
        await asyncio.gather(replayer, return_exceptions=True)
        await self._lineage.close(max(1.0, deadline - loop.time()))
        await self._server.close()

    def _unready_reasons(self) -> list[str]:
        reasons = [] if self._log.healthy else ["log: the last commit failed"]
        if self._lineage.failed.is_full:
            reasons.append("failed events: the handler is far behind")
        try:
            return reasons + self._health()
        except Exception as error:
            logger.exception("The health of a part could not be determined.")
            return [*reasons, f"health: {type(error).__name__}"]

    async def _replay(self) -> None:
        while True:
            await asyncio.sleep(self._replay_seconds)
            try:
                await asyncio.to_thread(
                    replay, self._rejects, self._lineage.limits, self._lineage.validator, self._log
                )
            except Exception:
                logger.exception("The replay of rejects failed; the gateway tries again.")
