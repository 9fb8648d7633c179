"""`headwater pipeline stream`: loads the events of queues into tables as they arrive."""

from __future__ import annotations

import logging
import threading

import click

from headwater.cli.options import with_master, with_settings
from headwater.cli.pipeline.spark import start_spark, with_lineage
from headwater.cli.process import configure_logging, on_stop_signal
from headwater.errors import SettingsError
from headwater.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


@click.command("stream")
@with_lineage
@with_settings
@with_master
def stream(settings: Settings, lineage: bool | None) -> None:
    """Load events into the destinations in stream mode, as they arrive.

    SIGTERM or Ctrl-C stops it after the micro-batches in progress; a second signal exits at once, which
    neither loses nor doubles an event. A destination that cannot be reached is retried without limit and
    delays no other one; its events stay in its queue. If Spark itself dies, the exit code is 1.
    """
    configure_logging(settings)
    wanted = [each.id for each in settings.destinations if each.is_stream]
    if not wanted:
        raise SettingsError(["no destination is in stream mode; set `mode: stream` in one of `destinations`"])
    stopping = threading.Event()
    on_stop_signal(stopping.set, "after the micro-batches in progress")
    from headwater.pipeline.stream.streams import Streams

    with Streams(settings, start_spark(settings, lineage, "stream")) as streams:
        click.echo(f"streaming into {', '.join(wanted)}", err=True)
        while not stopping.wait(POLL_SECONDS):
            streams.tend()
    log.info("Stopped.")
