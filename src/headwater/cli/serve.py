"""`headwater serve`: runs the server until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from headwater.cli.options import with_settings
from headwater.cli.process import configure_logging, on_stop_signal
from headwater.cli.server import Server
from headwater.durable_files import DiskReserve
from headwater.errors import LogFull
from headwater.event_loop import new_loop
from headwater.settings import Settings

logger = logging.getLogger(__name__)


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
        click.echo(server.greeting(), err=True)
        await stop.wait()
    finally:
        await server.close()
    reserve.allocate()
    logger.info("Stopped.")
