"""The graph as a part of the server: folds what the log takes in, and answers who asks."""

from __future__ import annotations

import logging

from headwater.gateway.admin import Admin, is_loopback
from headwater.gateway.routes import Routes
from headwater.graph.fold import Folding
from headwater.graph.requests import Readers
from headwater.graph.routes import add_routes
from headwater.graph.store import Graph
from headwater.log.store import Log
from headwater.metrics import Metrics
from headwater.settings import Settings

__all__ = ["GraphPart"]

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
