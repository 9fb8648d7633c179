"""`headwater serve`: builds the parts of one server, starts them in order and stops them in order."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.exposure import exposures
from headwater.cli.options import log_folder, with_settings
from headwater.cli.process import announce, configure_logging, keep_files_private, on_stop_signal
from headwater.delivery.outlet_worker import OutletWorker
from headwater.durable_files import DiskReserve
from headwater.errors import HeadwaterError, LogFull
from headwater.event_loop import new_loop
from headwater.gateway.event_routes import EventRoutes
from headwater.gateway.gateway import Gateway
from headwater.http.auth import AdminToken
from headwater.log.event_sink import EventSink, FanOut
from headwater.log.files.incoming import Incoming
from headwater.log.kafka.topics import Topics
from headwater.log.queue.log import Log
from headwater.log.rejects.rejects import Rejects, rejects_path
from headwater.log.rejects.store import RejectStore
from headwater.log.streams import Queues
from headwater.metrics import Metrics, StatsdPublisher
from headwater.network import ClientAddresses
from headwater.permissions import permission_hint
from headwater.settings import Settings

if TYPE_CHECKING:
    from headwater.graph.http.query_pool import QueryPool
    from headwater.graph.ingest.follower import LogFollower
    from headwater.page.app import Page
    from headwater.page.views.rates import Rates

logger = logging.getLogger(__name__)

# The value of `headwater.graph.ingest.follower.READER`; that module is imported only with the graph.
GRAPH_READER = "headwater:graph"


@click.command("serve")
@click.option(
    "--graph/--no-graph",
    "graph",
    default=None,
    help="Build the lineage graph from lineage events and serve it, or not; default: `graph.enabled`.",
)
@with_settings
def command(settings: Settings, graph: bool | None) -> None:
    """Run the server: accept events, store them, deliver them to the outlets.

    SIGTERM or Ctrl-C stops it after every received event is committed and answered. A second signal exits at
    once, which loses no acknowledged event either.
    """
    configure_logging(settings)
    keep_files_private()
    with_graph = graph if graph is not None else bool(settings.graph.enabled)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(settings, with_graph=with_graph))


async def _serve(settings: Settings, *, with_graph: bool) -> None:
    stop = asyncio.Event()
    on_stop_signal(stop.set, "received events are committed and answered first")
    reserve = DiskReserve(Path(settings.data_dir))
    server = Server(settings, with_graph=with_graph)
    try:
        try:
            await server.start()
        except LogFull as error:
            if not reserve.release():
                raise
            logger.warning("%s Starting with the reserved disk space.", error.text)
            await server.close()
            server = Server(settings, with_graph=with_graph)
            await server.start()
        else:
            reserve.allocate()
        announce(settings, server.greeting())
        await stop.wait()
    finally:
        await server.close()
    reserve.allocate()
    logger.info("Stopped.")


class Server:
    """All parts of one server. Every other part uses the log, so it is opened first and closed last."""

    def __init__(self, settings: Settings, *, with_graph: bool = False) -> None:
        self._settings = settings
        self._with_graph = with_graph
        self.metrics = Metrics()
        self._log: Log | None = None
        self._rejects: RejectStore | None = None
        self._outlets: dict[str, OutletWorker] = {}
        self._gateway: Gateway | None = None
        self._incoming: Incoming | None = None
        self._queues: Queues | None = None
        self._topics: Topics | None = None
        self._graph: _Graph | None = None
        self._page: _Page | None = None
        self._statsd: StatsdPublisher | None = None

    def compose(self) -> None:
        """Open the log and build the parts; nothing is sent, and no port is opened.

        `headwater check` does the same with an empty data folder, so that it refuses what `serve` refuses.
        """
        settings = self._settings
        folder = log_folder(settings)
        _make(folder, "data_dir")
        self._log = Log.open(folder, settings.log, metrics=self.metrics)
        self._rejects = RejectStore(
            rejects_path(settings),
            max_bytes=settings.log.rejects_bytes,
            retention_bytes=settings.log.retention_bytes,
            retention_hours=settings.log.retention_hours,
            metrics=self.metrics,
        )
        for outlet in settings.outlets:
            self._outlets[outlet.name] = OutletWorker(outlet, self._log, self._rejects, self.metrics)
        self._gateway = Gateway(
            settings.gateway,
            self._log,
            self._rejects,
            self.metrics,
            health=self._health,
        )
        if settings.tokens:
            EventRoutes(settings.gateway, settings.tokens, self._event_sink(), self.metrics).add(
                self._gateway.router
            )
        if self._with_graph:
            self._graph = _Graph(settings, self._log, self._gateway, self.metrics)
            if importlib.util.find_spec("jinja2") is not None:
                self._page = _Page(self, self._log, self._rejects, self._gateway, self._graph.pool)
            else:
                logger.info("No page at /: it needs `pip install 'headwater[page]'`.")
        else:
            # The cursor of a graph that is switched off would keep every event in the log.
            self._log.forget(GRAPH_READER)
        if (statsd := settings.metrics.statsd) is not None:
            self._statsd = StatsdPublisher(
                self.metrics, statsd.host, statsd.port, statsd.prefix, statsd.interval_seconds
            )

    async def start(self) -> None:
        """Build the parts, listen, then start graph, page, outlets and the statsd publisher."""
        for warning in exposures(self._settings):
            logger.warning("%s", warning)
        self.compose()
        assert self._gateway is not None
        await self._gateway.start()
        if self._graph is not None:
            self._graph.start()
        if self._page is not None:
            self._page.start()
        for worker in self._outlets.values():
            worker.start()
        if self._statsd is not None:
            self._statsd.start()

    def _event_sink(self) -> EventSink:
        """Where events of tokens are stored: Kafka topics, or event files and the queues of streams."""
        settings = self._settings
        if settings.events.kafka is not None:
            ids = [token.id for token in settings.tokens]
            self._topics = Topics(settings.events.kafka, ids, metrics=self.metrics)
            return self._topics
        _make(settings.events_dir, "events.dir")
        self._incoming = Incoming(settings.events_dir, settings.events, metrics=self.metrics)
        streams = [destination for destination in settings.destinations if destination.is_stream]
        if not streams:
            return self._incoming
        self._queues = Queues(settings.events_dir, streams, settings.log, metrics=self.metrics)
        return FanOut(self._incoming, self._queues, settings.destinations)

    def greeting(self) -> str:
        """One line: the address, the data folder and the outlets."""
        settings = self._settings
        assert self._gateway is not None
        scheme = "https" if settings.gateway.tls else "http"
        host = f"[{settings.gateway.host}]" if ":" in settings.gateway.host else settings.gateway.host
        kept = "are in the graph" if self._with_graph else "are kept until an outlet is configured"
        outlets = ", ".join(self._outlets) or f"none (events {kept})"
        data = Path(settings.data_dir).resolve()
        page = ", page at /" if self._page is not None else ""
        address = f"{scheme}://{host}:{self._gateway.port}"
        return f"headwater listens on {address}, data in {data}, outlets: {outlets}{page}"

    def _health(self) -> list[str]:
        """The reasons for which /readyz answers 503."""
        found = ((name, worker.trouble()) for name, worker in self._outlets.items())
        reasons = [f"outlet {name}: {trouble}" for name, trouble in found if trouble]
        if self._incoming is not None and not self._incoming.healthy:
            reasons.append("events: the last commit to an incoming file failed")
        if self._queues is not None and not self._queues.healthy:
            reasons.append("events: the last commit to a stream's queue failed")
        if self._topics is not None and not self._topics.healthy:
            reasons.append("events: Kafka did not accept the last one")
        if self._rejects is not None and (trouble := self._rejects.trouble()):
            reasons.append(f"rejects: {trouble}")
        if self._graph is not None and (trouble := self._graph.stalled_reason()):
            reasons.append(f"graph: {trouble}")
        return reasons

    async def close(self) -> None:
        """Stop intake, let the outlets finish requests in flight, then close the log; within the timeout."""
        deadline = time.monotonic() + self._settings.gateway.shutdown_timeout_seconds
        if self._page is not None:
            self._page.end_streams()
        if self._gateway is not None:
            await self._gateway.close()
        left = max(1.0, deadline - time.monotonic())
        # In parallel, so that one outlet that hangs does not use up the time of the others (G7).
        closers = [threading.Thread(target=worker.close, args=(left,)) for worker in self._outlets.values()]
        for closer in closers:
            closer.start()
        for closer in closers:
            await asyncio.to_thread(closer.join)
        for part in (
            self._page,
            self._graph,
            self._incoming,
            self._queues,
            self._topics,
            self._log,
            self._rejects,
            self._statsd,
        ):
            if part is not None:
                await asyncio.to_thread(part.close)


def _make(folder: Path, setting: str) -> None:
    """Make a folder; the error names the setting, or the command that gives access."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = f"Set `{setting}` to a folder that can be written to."
        if isinstance(error, PermissionError):
            hint = f"{permission_hint(folder)} Or set `{setting}` to another folder."
        raise HeadwaterError(f"The folder {folder} cannot be made: {error.strerror}.", hint=hint) from None


class _Graph:
    """The lineage graph: the thread that writes it and the pool that answers queries."""

    def __init__(self, settings: Settings, log: Log, gateway: Gateway, metrics: Metrics) -> None:
        from headwater.graph.http.endpoints import add_routes
        from headwater.graph.http.query_pool import QueryPool
        from headwater.graph.ingest.follower import LogFollower
        from headwater.graph.store.database import GraphDatabase

        database = GraphDatabase(settings.graph_dir, settings.graph)
        try:
            self._follower: LogFollower = LogFollower(log, database, metrics)
        except BaseException:
            database.close()
            raise
        addresses = ClientAddresses(settings.gateway.trusted_proxies)
        self.pool: QueryPool = QueryPool(
            settings.graph_dir,
            client_of=lambda request: addresses.find(
                request.peer, request.headers.get("x-forwarded-for", "")
            ),
        )
        add_routes(gateway.router, self.pool, AdminToken(settings.gateway))

    def start(self) -> None:
        self._follower.start()

    def stalled_reason(self) -> str:
        """Why the graph does not advance; empty while it does."""
        return self._follower.stalled_reason()

    def close(self) -> None:
        """Finish the batch and the queries in progress."""
        self.pool.close()
        self._follower.close()


class _Page:
    """The page on the gateway's routes. Its streams end before the gateway stops, its thread after."""

    def __init__(
        self, server: Server, log: Log, rejects: RejectStore, gateway: Gateway, pool: QueryPool
    ) -> None:
        from headwater.page.access import PageAccess
        from headwater.page.app import Page, ViewSources
        from headwater.page.live import LiveStreams
        from headwater.page.views.event_tail import EventTail
        from headwater.page.views.rates import Rates
        from headwater.page.views.system import SystemStatus

        settings = server._settings
        self._rates: Rates = Rates(server.metrics)
        status = SystemStatus(settings, log, rejects, self._rates, health=server._health)
        self._page: Page = Page(
            pool,
            PageAccess(settings.gateway),
            ViewSources(status, Rejects(settings, rejects)),
            lambda: EventTail(log_folder(settings), settings.events_dir),
            live=LiveStreams(client_of=pool.client_of),
        )
        self._page.add(gateway.router)

    def start(self) -> None:
        self._rates.start()

    def end_streams(self) -> None:
        """End the event streams of browsers, which would delay the gateway's stop."""
        self._page.live.close()

    def close(self) -> None:
        self._rates.close()
