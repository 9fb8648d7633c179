"""The page as a part of the server: what is shown of the other parts, and who may see it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.cli.options import log_folder
from headwater.graph.http.endpoints import add_routes
from headwater.graph.http.query_pool import Readers
from headwater.graph.ingest.follower import Folding
from headwater.graph.store.database import Graph
from headwater.http.auth import Admin, is_loopback
from headwater.http.router import Routes
from headwater.log.queue.log import Log
from headwater.log.rejects.store import Rejects
from headwater.metrics import Metrics
from headwater.page.access import Guard
from headwater.page.app import Page
from headwater.page.views.event_tail import Tail
from headwater.page.views.pages import Sources
from headwater.page.views.rates import Pulse
from headwater.page.views.rejects import Refused
from headwater.page.views.system import Stages
from headwater.settings import Settings

__all__ = ["GraphPart", "PagePart"]


log = logging.getLogger(__name__)


class GraphPart:
    """Folding and reading, side by side on one file."""

    def __init__(self, settings: Settings, log_: Log, routes: Routes, metrics: Metrics) -> None:
        graph = Graph(settings.graph_dir, settings.graph)
        try:
            self._folding = Folding(log_, graph, metrics, batch_events=settings.graph.batch_events)
        except BaseException:
            graph.close()
            raise
        self.readers = Readers(settings.graph_dir)
        add_routes(routes, self.readers, Admin(settings.gateway))
        if not settings.gateway.admin_token and not is_loopback(settings.gateway.host):
            log.warning(
                "The graph is folded, but nobody can read it over HTTP: `gateway.host` is not a loopback "
                "address, and `gateway.admin_token` is not set."
            )

    def start(self) -> None:
        """Begin to fold."""
        self._folding.start()

    def trouble(self) -> str:
        """Why folding does not move; empty when it does."""
        return self._folding.trouble()

    def close(self) -> None:
        """Finish the batch and the queries that are under way."""
        self.readers.close()
        self._folding.close()


class PagePart:
    """The page on the gateway's routes. Ends its streams before the gateway stops, its threads after."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        rejects: Rejects,
        readers: Readers,
        routes: Routes,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]],
    ) -> None:
        self._pulse = Pulse(metrics)
        stages = Stages(settings, log, rejects, self._pulse, health=health)
        sources = Sources(stages, Refused(settings, rejects))
        self._page = Page(
            readers,
            Guard(settings.gateway),
            sources,
            lambda: Tail(log_folder(settings), settings.events_dir),
        )
        self._page.add(routes)

    def start(self) -> None:
        """Begin to count."""
        self._pulse.start()

    def end_streams(self) -> None:
        """Browsers that look on would otherwise hold up the end."""
        self._page.live.close()

    def close(self) -> None:
        self._pulse.close()
