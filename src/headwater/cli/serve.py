"""`headwater serve`: the sidecar. Wires gateway, log, rejects, outlets and numbers, and stops them."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.logging_setup import print_lines
from headwater.cli.options import log_folder, rejects_path, with_settings
from headwater.delivery.outlet_worker import Drain
from headwater.durable_files import DiskReserve
from headwater.errors import HeadwaterError, LogFull
from headwater.gateway.event_routes import EventRoutes
from headwater.gateway.server import Gateway
from headwater.log.event_sink import EventSink, FanOut
from headwater.log.files.incoming import Incoming
from headwater.log.kafka.topics import Topics
from headwater.log.queue.log import Log
from headwater.log.rejects.store import Rejects
from headwater.log.streams.queues import Queues
from headwater.metrics import Metrics, StatsdPublisher
from headwater.settings import Settings

__all__ = ["Sidecar", "command"]

if TYPE_CHECKING:
    from headwater.cli.server import GraphPart, PagePart

logger = logging.getLogger(__name__)

PAGE_NEEDS = ("jinja2",)  # the extra `page`
GRAPH_READER = (
    "headwater:graph"  # as headwater.graph.ingest.follower has it, which is not loaded without need
)


@click.command("serve")
@click.option(
    "--graph/--no-graph",
    "graph",
    default=None,
    help="Fold lineage events into the graph and serve it, or not; else as `graph.enabled` says.",
)
@with_settings
def command(settings: Settings, graph: bool | None) -> None:
    """Run the sidecar: take events in, keep them, send them on.

    SIGTERM or Ctrl-C stops it: what was received is committed and answered first. A second one quits at once;
    nothing acknowledged is lost by that either.
    """
    print_lines(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, with_graph=graph if graph is not None else bool(settings.graph.enabled)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ModuleNotFoundError:  # it is not to be had everywhere
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(settings: Settings, *, with_graph: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopping(number: int) -> None:
        if stop.is_set():
            logger.warning("Quitting at once, as asked; what was acknowledged is on disk.")
            os._exit(128 + number)
        logger.info("Stopping on %s; once more quits at once.", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping, number)
    reserve = DiskReserve(Path(settings.data_dir))
    sidecar = Sidecar(settings, with_graph=with_graph)
    try:
        try:
            await sidecar.start()
        except LogFull as error:
            if not reserve.release():
                raise
            logger.warning("%s Starting with the space that was set by for that.", error.text)
            await sidecar.close()
            sidecar = Sidecar(settings, with_graph=with_graph)
            await sidecar.start()
        else:
            reserve.allocate()
        click.echo(sidecar.greeting(), err=True)
        await stop.wait()
    finally:
        await sidecar.close()
    reserve.allocate()
    logger.info("Stopped.")


class Sidecar:
    """All parts of one server. The log is opened first and closed last: everything else leans on it."""

    def __init__(self, settings: Settings, *, with_graph: bool = False) -> None:
        self._settings = settings
        self._with_graph = with_graph
        self._graph: GraphPart | None = None
        self._page: PagePart | None = None
        self.metrics = Metrics()
        self._log: Log | None = None
        self._rejects: Rejects | None = None
        self._drains: dict[str, Drain] = {}
        self._gateway: Gateway | None = None
        self._incoming: Incoming | None = None
        self._queues: Queues | None = None
        self._topics: Topics | None = None
        self._statsd: StatsdPublisher | None = None

    async def start(self) -> None:
        """Open the log, listen, and start the outlets."""
        settings = self._settings
        folder = log_folder(settings)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadwaterError(
                f"The folder {folder} cannot be made: {error.strerror}.",
                hint="Set `data_dir` to one that can.",
            ) from None
        self._log = Log.open(folder, settings.log, metrics=self.metrics)
        self._rejects = Rejects(
            rejects_path(settings), max_bytes=settings.log.rejects_bytes, metrics=self.metrics
        )
        for outlet in settings.outlets:
            self._drains[outlet.name] = Drain(outlet, self._log, self._rejects, self.metrics)
        self._gateway = Gateway(
            settings.gateway,
            self._log,
            self._rejects,
            self.metrics,
            health=self._troubles,
            openmetrics=settings.metrics.openmetrics,
        )
        if settings.tokens and settings.events.kafka is not None:
            ids = [token.id for token in settings.tokens]
            self._topics = Topics(settings.events.kafka, ids, metrics=self.metrics)
            EventRoutes(settings.gateway, settings.tokens, self._topics, self.metrics).add(
                self._gateway.routes
            )
        elif settings.tokens:
            self._incoming = Incoming(settings.events_dir, settings.events, metrics=self.metrics)
            sink: EventSink = self._incoming
            if streams := [each for each in settings.destinations if each.is_stream]:
                self._queues = Queues(settings.events_dir, streams, settings.log, metrics=self.metrics)
                sink = FanOut(self._incoming, self._queues, settings.destinations)
            events = EventRoutes(settings.gateway, settings.tokens, sink, self.metrics)
            events.add(self._gateway.routes)
        if self._with_graph:
            from headwater.cli.server import GraphPart  # the sidecar alone does not load it

            self._graph = GraphPart(settings, self._log, self._gateway.routes, self.metrics)
            self._page = self._make_page(self._graph, self._gateway, self._log, self._rejects)
        else:
            self._log.forget(GRAPH_READER)  # it would hold back events that nobody folds
        await self._gateway.start()
        if self._graph is not None:
            self._graph.start()
        if self._page is not None:
            self._page.start()
        for drain in self._drains.values():
            drain.start()
        if (statsd := settings.metrics.statsd) is not None:
            self._statsd = StatsdPublisher(
                self.metrics, statsd.host, statsd.port, statsd.prefix, statsd.interval_seconds
            )
            self._statsd.start()

    def _make_page(self, graph: GraphPart, gateway: Gateway, log: Log, rejects: Rejects) -> PagePart | None:
        if any(importlib.util.find_spec(name) is None for name in PAGE_NEEDS):
            logger.info("There is no page at /: type `pip install 'headwater[page]'` for it.")
            return None
        from headwater.cli.server import PagePart

        return PagePart(
            self._settings,
            log,
            rejects,
            graph.readers,
            gateway.routes,
            self.metrics,
            health=self._troubles,
        )

    def greeting(self) -> str:
        """The one line that says that it listens, and where things are."""
        settings = self._settings
        assert self._gateway is not None
        scheme = "https" if settings.gateway.tls else "http"
        host = f"[{settings.gateway.host}]" if ":" in settings.gateway.host else settings.gateway.host
        kept = "are in the graph" if self._with_graph else "are kept until an outlet is configured"
        outlets = ", ".join(self._drains) or f"none (events {kept})"
        data = Path(settings.data_dir).resolve()
        page = ", page at /" if self._page is not None else ""
        address = f"{scheme}://{host}:{self._gateway.port}"
        return f"headwater listens on {address}, data in {data}, outlets: {outlets}{page}"

    def _troubles(self) -> list[str]:
        found = ((name, drain.trouble()) for name, drain in self._drains.items())
        troubles = [f"outlet {name}: {trouble}" for name, trouble in found if trouble]
        if self._incoming is not None and not self._incoming.healthy:
            troubles.append("events: the last commit to an incoming file failed")
        if self._queues is not None and not self._queues.healthy:
            troubles.append("events: the last commit to a stream's queue failed")
        if self._topics is not None and not self._topics.healthy:
            troubles.append("events: Kafka did not take the last one")
        if self._graph is not None and (trouble := self._graph.trouble()):
            troubles.append(f"graph: {trouble}")
        return troubles

    async def close(self) -> None:
        """Stop taking in, let outlets finish what is in flight, then close the log; within the timeout."""
        deadline = time.monotonic() + self._settings.gateway.shutdown_timeout_seconds
        if self._page is not None:
            self._page.end_streams()
        if self._gateway is not None:
            await self._gateway.close()
        left = max(1.0, deadline - time.monotonic())
        # side by side, so that one outlet that hangs does not use up the time of the others (G7)
        closers = [threading.Thread(target=drain.close, args=(left,)) for drain in self._drains.values()]
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
