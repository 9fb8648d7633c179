"""`headwater serve`: builds the parts of one server, starts them in order and stops them in order."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from headwater import settings as settings_module
from headwater.cli.options import log_folder, with_settings
from headwater.cli.server import descriptors, graph_process
from headwater.cli.server.exposure import exposures
from headwater.cli.server.left_over_readers import GRAPH_READER, left_over_readers
from headwater.cli.server.pipeline_watch import PipelineWatch
from headwater.cli.server.process import announce, announce_ready, configure_logging
from headwater.cli.server.signals import Signals, end_when_a_thread_dies
from headwater.delivery.loop_thread import LoopThreads
from headwater.delivery.outlet_worker import GRACE_SECONDS, OutletWorker
from headwater.delivery.outlets.base import load_outlet
from headwater.errors import HeadwaterError, LogFull, SettingsError
from headwater.gateway.event_routes import EventRoutes
from headwater.gateway.gateway import Gateway
from headwater.http.auth import AdminToken
from headwater.log.backup import refuse_half_restored
from headwater.log.event_sink import EventSink, FanOut
from headwater.log.files.incoming import Incoming
from headwater.log.kafka.topics import Topics
from headwater.log.last_start import LastStart, losing_changes, outlets_gone
from headwater.log.orphans import orphans
from headwater.log.queue.log import Log
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.log.rejects.rejects import Rejects, rejects_path
from headwater.log.rejects.store import RejectStore
from headwater.log.streams import Queues
from headwater.metrics import Metrics, StatsdPublisher
from headwater.settings import GatewaySettings, OutletSettings, Settings
from headwater.system.durable_files import DiskReserve
from headwater.system.event_loop import new_loop
from headwater.system.installation import install_command
from headwater.system.network import ClientAddresses
from headwater.system.permissions import permission_hint

if TYPE_CHECKING:
    from headwater.graph.http.query_pool import QueryPool
    from headwater.graph.ingest.follower import LogFollower
    from headwater.page.app import Page
    from headwater.page.views.rates import Rates

logger = logging.getLogger(__name__)

OPEN_FILES_SECONDS = 2.0  # between two looks at the number of open files
FINISH_SECONDS = 2.0  # that an outlet which a reload removes has to finish its last events
RELOADED = ("tokens", "outlets")  # and of `gateway`:
RELOADED_KEYS = ("api_keys", "admin_token")


@click.command("serve")
@click.option(
    "--graph/--no-graph",
    "graph",
    default=None,
    help="Build the lineage graph from lineage events and serve it, or not; default: `graph.enabled`.",
)
@with_settings
@click.pass_context
def command(ctx: click.Context, settings: Settings, graph: bool | None) -> None:
    """Run the server: accept events, store them, deliver them to the outlets.

    SIGTERM or Ctrl-C stops it after every received event is committed and answered. Ctrl-C then exits at
    once, which loses no acknowledged event either. SIGHUP reads keys, tokens and outlets again; SIGQUIT logs
    what each thread does.
    """
    configure_logging(settings)
    descriptors.raise_limit()
    with_graph = graph if graph is not None else bool(settings.graph.enabled)
    config = ctx.params.get("config") or ctx.find_root().obj
    with asyncio.Runner(loop_factory=new_loop) as runner:
        code = runner.run(_serve(settings, with_graph=with_graph, load=lambda: settings_module.load(config)))
    ctx.exit(code)


async def _serve(settings: Settings, *, with_graph: bool, load: Callable[[], Settings]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reserve = DiskReserve(Path(settings.data_dir))
    server = Server(settings, with_graph=with_graph)
    signals = Signals(
        lambda: loop.call_soon_threadsafe(stop.set),
        "received events are committed and answered first",
        reload=lambda: loop.call_soon_threadsafe(server.reload, load),
        stop_seconds=settings.gateway.shutdown_timeout_seconds + 2 * GRACE_SECONDS,
    )
    end_when_a_thread_dies(signals)
    watch = loop.create_task(_watch_open_files())
    try:
        try:
            with _enough_files():
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
        announce_ready(settings, server.next_steps())
        await stop.wait()
    finally:
        watch.cancel()
        await server.close()
    reserve.allocate()
    logger.info("Stopped.")
    return signals.exit_code


@contextmanager
def _enough_files() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise HeadwaterError(
            f"The server cannot start: {error.strerror} (`ulimit -n` is {descriptors.limit()}).",
            hint="Raise the limit: `ulimit -n 65536` in a shell, `LimitNOFILE=65536` in a unit of systemd.",
        ) from error


async def _watch_open_files() -> None:
    logged = False
    while True:
        shortage = descriptors.shortage()
        if shortage and not logged:
            logger.error("Connections fail or will soon: %s. Raise the limit and restart.", shortage)
        logged = shortage is not None
        await asyncio.sleep(OPEN_FILES_SECONDS)


class Server:
    """All parts of one server. Every other part uses the log, so it is opened first and closed last."""

    def __init__(self, settings: Settings, *, with_graph: bool = False) -> None:
        self._settings = settings
        self._with_graph = with_graph
        self.metrics = Metrics()
        self._log: Log | None = None
        self._rejects: RejectStore | None = None
        self._loops = LoopThreads()
        self._reloads: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self._outlets: dict[str, OutletWorker] = {}
        self._event_routes: EventRoutes | None = None
        self._gateway: Gateway | None = None
        self._incoming: Incoming | None = None
        self._queues: Queues | None = None
        self._topics: Topics | None = None
        self._graph: _Graph | None = None
        self._page: _Page | None = None
        self._statsd: StatsdPublisher | None = None
        self._pipeline: PipelineWatch | None = None
        self.reject_files = DestinationRejects(settings.events_dir)  # counted once for all who show it

    def compose(self) -> None:
        """Open the log and build the parts; nothing is sent, and no port is opened.

        `headwater check` does the same with an empty data folder, so that it refuses what `serve` refuses.
        """
        settings = self._settings
        folder = log_folder(settings)
        _make(folder, "data_dir")
        refuse_half_restored(Path(settings.data_dir))
        if problems := list(losing_changes(settings, LastStart.load(Path(settings.data_dir)))):
            raise SettingsError(problems)
        self._log = Log.open(folder, settings.log, metrics=self.metrics)
        self._save_last_start()
        self._rejects = RejectStore(
            rejects_path(settings),
            max_bytes=settings.log.rejects_bytes,
            retention_bytes=settings.log.retention_bytes,
            retention_hours=settings.log.retention_hours,
            metrics=self.metrics,
        )
        for outlet in settings.outlets:
            self._outlets[outlet.name] = self._worker(outlet)
        self._gateway = Gateway(
            settings.gateway,
            self._log,
            self._rejects,
            self.metrics,
            health=self._health,
        )
        if settings.tokens:
            self._event_routes = EventRoutes(
                settings.gateway, settings.tokens, self._event_sink(), self.metrics
            )
            self._event_routes.add(self._gateway.router)
        if self._with_graph:
            self._graph = _Graph(settings, self._log, self._gateway, self.metrics)
            if importlib.util.find_spec("jinja2") is not None:
                self._page = _Page(self, self._log, self._rejects, self._gateway, self._graph.pool)
            else:
                logger.info("No page at /: it needs `%s`.", install_command("page"))
        else:
            # The cursor of a graph that is switched off would keep every event in the log.
            self._log.forget(GRAPH_READER)
        self._pipeline = PipelineWatch(
            settings,
            self._rejects,
            self.metrics,
            files=self.reject_files,
            witnessed_now=self._log.witnessed_now,
        )
        if (statsd := settings.metrics.statsd) is not None:
            self._statsd = StatsdPublisher(
                self.metrics, statsd.host, statsd.port, statsd.prefix, statsd.interval_seconds
            )

    async def start(self) -> None:
        """Build the parts, listen, then start graph, page, outlets and the statsd publisher."""
        for warning in exposures(self._settings):
            logger.warning("%s", warning)
        self.compose()
        self._warn_of_left_over_readers()
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
        assert self._pipeline is not None
        self._pipeline.start()

    def _save_last_start(self) -> None:
        try:
            LastStart.of(self._settings).save(Path(self._settings.data_dir))
        except OSError as error:  # a full disk must not keep events out; they are compared less well
            logger.error("The settings of this start could not be recorded: %s", error)

    def _warn_of_left_over_readers(self) -> None:
        assert self._log is not None
        for warning in left_over_readers(self._log.readers, self._settings):
            logger.warning("%s", warning)
        try:
            for orphan in orphans(self._settings):
                logger.error("%s", orphan)
        except (OSError, ValueError) as error:  # a folder that the server itself does not use
            logger.error("What waits in %s is not known: %s", self._settings.events_dir, error)

    def _worker(self, outlet: OutletSettings) -> OutletWorker:
        assert self._log is not None
        assert self._rejects is not None
        return OutletWorker(outlet, self._log, self._rejects, self.metrics, loops=self._loops)

    def reload(self, load: Callable[[], Settings]) -> None:
        """Begin to read the settings again: keys, tokens and outlets; in the loop's thread."""
        task = asyncio.get_running_loop().create_task(self._reload_in_turn(load))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload_in_turn(self, load: Callable[[], Settings]) -> None:
        async with self._reloading:
            try:
                changed = await self._reload(load())
            except HeadwaterError as error:
                logger.error("The settings were not reloaded, and those from before are in use: %s", error)
            except OSError as error:
                logger.error("The settings were not reloaded; the file cannot be read: %s", error)
            else:
                logger.info("The settings were reloaded: %s.", ", ".join(changed) or "nothing has changed")

    async def _reload(self, settings: Settings) -> list[str]:
        """Apply the settings and return what has changed; those that cannot be used change nothing."""
        before = self._settings
        keys = {name: getattr(settings.gateway, name) for name in RELOADED_KEYS}
        gateway = msgspec.structs.replace(before.gateway, **keys)
        for name in Settings.__struct_fields__:
            here = gateway if name == "gateway" else getattr(before, name)
            if name not in RELOADED and getattr(settings, name) != here:
                logger.warning("`%s` has changed in the settings; that needs a restart.", name)
        old = {outlet.name: outlet for outlet in before.outlets}
        outlets = [outlet for outlet in settings.outlets if old.get(outlet.name) != outlet]
        for outlet in outlets:
            load_outlet(outlet)  # raises before anything has changed
        await self._refuse_to_lose({outlet.name for outlet in settings.outlets}, set(old))
        changed = []
        if gateway != before.gateway:
            self._reload_keys(gateway)
            changed.append("keys")
        tokens = before.tokens
        if settings.tokens != tokens:
            if self._event_routes is None:
                logger.warning("`tokens` was empty at the start; the first one needs a restart.")
            else:
                if self._topics is not None:
                    self._topics.add([token.id for token in settings.tokens])
                self._event_routes.reload(settings.tokens)
                tokens = settings.tokens
                changed.append("tokens")
        kept = {outlet.name for outlet in settings.outlets} - {outlet.name for outlet in outlets}
        if outlets or old.keys() - kept:
            await self._reload_outlets(outlets, old.keys() - kept)
            changed.append("outlets")
        self._settings = msgspec.structs.replace(
            before, gateway=gateway, tokens=tokens, outlets=settings.outlets
        )
        for warning in exposures(self._settings):
            logger.warning("%s", warning)
        if "outlets" in changed:
            self._save_last_start()
            self._warn_of_left_over_readers()
        return changed

    async def _refuse_to_lose(self, outlets: set[str], before: set[str]) -> None:
        """Raise SettingsError if events wait for an outlet that would be gone, as the next start would."""
        assert self._log is not None
        deadline = time.monotonic() + FINISH_SECONDS
        while before - outlets:
            found = await asyncio.to_thread(self._log.stat)
            if not (problems := list(outlets_gone(found, outlets, before))):
                return
            if time.monotonic() > deadline:
                raise SettingsError(problems)
            await asyncio.sleep(0.05)

    def _reload_keys(self, settings: GatewaySettings) -> None:
        assert self._gateway is not None
        self._gateway.reload(settings)
        if self._graph is not None:
            self._graph.access.reload(settings)
        if self._page is not None:
            self._page.access.reload(settings)

    async def _reload_outlets(self, fresh: Sequence[OutletSettings], gone: Collection[str]) -> None:
        """Stop those that are gone or have changed, then start those that are new or have changed."""
        seconds = self._settings.gateway.shutdown_timeout_seconds
        stopping = {name: self._outlets.pop(name) for name in gone if name in self._outlets}
        for worker in stopping.values():
            worker.stop(seconds)
        for worker in stopping.values():
            await asyncio.to_thread(worker.join, seconds + GRACE_SECONDS)
        for name in stopping:
            self.metrics.forget("outlet", name)
        for outlet in fresh:
            if outlet.name in stopping and stopping[outlet.name].is_running:
                # Two workers with one cursor would send events twice.
                logger.error("Outlet %s has not stopped; it needs a restart of the server.", outlet.name)
                continue
            self._outlets[outlet.name] = self._worker(outlet)
            self._outlets[outlet.name].start()

    def _event_sink(self) -> EventSink:
        """Where events of tokens are stored: Kafka topics, or event files and the queues of streams."""
        settings = self._settings
        if settings.events.kafka is not None:
            ids = [token.id for token in settings.tokens]
            self._topics = Topics(settings.events.kafka, ids, metrics=self.metrics)
            return self._topics
        _make(settings.events_dir, "events.dir")
        self._incoming = Incoming(
            settings.events_dir, settings.events, metrics=self.metrics, destinations=settings.destinations
        )
        streams = [destination for destination in settings.destinations if destination.is_stream]
        if not streams:
            return self._incoming
        self._queues = Queues(settings.events_dir, streams, settings.log, metrics=self.metrics)
        return FanOut(self._incoming, self._queues, settings.destinations)

    def greeting(self) -> str:
        """One line: the address, the data folder and the outlets."""
        settings = self._settings
        kept = "are in the graph" if self._with_graph else "are kept until an outlet is configured"
        outlets = ", ".join(self._outlets) or f"none (events {kept})"
        data = Path(settings.data_dir).resolve()
        page = ", page at /" if self._page is not None else ""
        return f"headwater listens on {self._address}, data in {data}, outlets: {outlets}{page}"

    def next_steps(self) -> str:
        """One line: what to open in a browser, and where producers send events."""
        to = self._address.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
        found = [f"open {to}/"] if self._page is not None else []
        found.append(f"send lineage to {to}/api/v1/lineage")
        if self._event_routes is not None:
            found.append(f"events to {to}/api/v1/event")
        return ", ".join(found)

    @property
    def _address(self) -> str:
        settings = self._settings.gateway
        assert self._gateway is not None
        scheme = "https" if settings.tls else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"{scheme}://{host}:{self._gateway.port}"

    def _health(self) -> list[str]:
        """The reasons for which /readyz answers 503."""
        found = ((name, worker.trouble()) for name, worker in self._outlets.items())
        reasons = [f"outlet {name}: {trouble}" for name, trouble in found if trouble]
        if self._log is not None:
            reasons += [f"log: {trouble}" for trouble in self._log.trouble()]
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
        if self._pipeline is not None:
            reasons += self._pipeline.reasons()
        return reasons

    async def close(self) -> None:
        """Stop intake, let the outlets finish requests in flight, then close the log; within the timeout."""
        deadline = time.monotonic() + self._settings.gateway.shutdown_timeout_seconds
        if self._page is not None:
            self._page.end_streams()
        if self._gateway is not None:
            await self._gateway.close()
        left = max(1.0, deadline - time.monotonic())
        for task in list(self._reloads):
            task.cancel()
        # In parallel, so that one outlet that hangs does not use up the time of the others (G7).
        for worker in self._outlets.values():
            worker.stop(left)
        until = time.monotonic() + left + GRACE_SECONDS
        for worker in self._outlets.values():
            await asyncio.to_thread(worker.join, max(0.0, until - time.monotonic()))
        await asyncio.to_thread(self._loops.close, max(0.0, until - time.monotonic()))
        for part in (
            self._page,
            self._graph,
            self._incoming,
            self._queues,
            self._topics,
            self._log,
            self._pipeline,
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
    """The lineage graph: the process that writes it, the thread that feeds it, and the pool of queries."""

    def __init__(self, settings: Settings, log: Log, gateway: Gateway, metrics: Metrics) -> None:
        from headwater.graph.http.endpoints import add_routes
        from headwater.graph.http.query_pool import QueryPool
        from headwater.graph.ingest.follower import LogFollower
        from headwater.graph.ingest.process import IngestProcess

        database = IngestProcess(settings.graph_dir, settings.graph, graph_process.command(settings))
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
        self.access = AdminToken(settings.gateway)
        add_routes(gateway.router, self.pool, self.access)

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
        files = server.reject_files
        status = SystemStatus(settings, log, rejects, self._rates, files=files, health=server._health)
        self.access = PageAccess(settings.gateway)
        self._page: Page = Page(
            pool,
            self.access,
            ViewSources(status, Rejects(settings, rejects, files)),
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
