"""The page as a part of the server: what is shown of the other parts, and who may see it."""

from __future__ import annotations

from collections.abc import Callable

from headwater.cli.options import log_folder
from headwater.gateway.routes import Routes
from headwater.graph.requests import Readers
from headwater.log.rejects import Rejects
from headwater.log.store import Log
from headwater.metrics import Metrics
from headwater.page.guard import Guard
from headwater.page.pulse import Pulse
from headwater.page.refused import Refused
from headwater.page.routes import Page
from headwater.page.stages import Stages
from headwater.page.tail import Tail
from headwater.page.views import Sources
from headwater.settings import Settings

__all__ = ["PagePart"]


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
