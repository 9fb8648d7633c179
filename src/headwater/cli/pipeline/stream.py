"""`headwater pipeline stream`: what comes into the queues becomes rows at once."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import click

from headwater.cli.options import with_master, with_settings
from headwater.cli.pipeline.own_lineage import tell_own_lineage, with_lineage
from headwater.cli.process import configure_logging, on_stop_signal
from headwater.errors import SettingsError
from headwater.settings import Settings

__all__ = ["stream"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5


@click.command("stream")
@with_lineage
@with_settings
@with_master
def stream(settings: Settings, lineage: bool | None) -> None:
    """Load events into the destinations in stream mode, as they come.

    It goes on until SIGTERM or Ctrl-C, which ends it after the micro-batch under way; a second one quits at
    once, and nothing is lost or doubled by that either. A destination that is away is tried again for ever,
    and holds back no other; its events wait in its queue. If Spark itself dies, it ends with exit code 1.
    """
    configure_logging(settings)
    wanted = [each.id for each in settings.destinations if each.is_stream]
    if not wanted:
        raise SettingsError(["no destination is in stream mode; set `mode: stream` in one of `destinations`"])
    stopping = threading.Event()
    on_stop_signal(stopping.set, "after the micro-batches in progress")
    from headwater.pipeline.spark.session import start
    from headwater.pipeline.stream.streams import Streams

    log_file = Path(settings.data_dir) / "spark.log"
    click.echo(f"starting Spark on {settings.pipeline.master} ({log_file}) ...", err=True)
    spark = start(settings.pipeline, log_file=log_file)
    tell_own_lineage(settings, spark, lineage, "stream")
    with Streams(settings, spark) as streams:
        click.echo(f"streaming into {', '.join(wanted)}", err=True)
        while not stopping.wait(LOOK_SECONDS):
            streams.tend()
    log.info("Stopped.")
