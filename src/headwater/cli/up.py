"""`headwater up`: everything that the configuration names, as one supervised tree of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from headwater.cli.lines import print_lines
from headwater.cli.options import with_settings
from headwater.cli.pipeline import Duration
from headwater.cli.supervisor import Part, Supervisor
from headwater.settings import Settings

__all__ = ["command", "parts"]

COLOURS = ("cyan", "magenta", "green", "yellow", "blue")


@click.command("up")
@click.option(
    "--every",
    type=Duration(),
    help="Pause between two cycles of the pipeline; default: as often as files are rotated.",
)
@with_settings
@click.pass_context
def command(ctx: click.Context, settings: Settings, every: float | None) -> None:
    """Run everything as one: sidecar and pipeline, restarted when they die.

    The pipeline runs where there are destinations, in batch and in stream mode, as they say.
    A part that dies is started again, after a pause that grows from one second to a minute. SIGTERM or Ctrl-C
    stops all of it in order: the gateway first, then what works on what it took in. A second one quits at
    once; nothing acknowledged is lost by that either.

    Exit codes: 0 stopped as asked, 1 a part did not stop by itself, 2 a part's configuration is wrong.
    """
    print_lines(settings)
    config = ctx.params.get("config") or ctx.find_root().obj
    wanted = parts(settings, config, every)
    tell = _json_lines if settings.log_format == "json" else _text_lines(wanted)
    ctx.exit(asyncio.run(_run(wanted, tell)))


def parts(settings: Settings, config: str | None = None, every: float | None = None) -> list[Part]:
    """The processes that these settings ask for, in the order in which they stop."""
    start = (sys.executable, "-m", "headwater", *(("-c", config) if config else ()))
    # the sidecar alone stays light; here the graph is on, unless the settings say no
    graph = "--no-graph" if settings.graph.enabled is False else "--graph"
    found = [Part("gateway", (*start, "serve", graph), settings.gateway.shutdown_timeout_seconds + 10)]
    # where the graph is on, the pipeline tells it of its own tables
    told = settings.pipeline.lineage.enabled
    lineage = "--lineage" if (told if told is not None else graph == "--graph") else "--no-lineage"
    if any(destination.is_stream for destination in settings.destinations):
        found.append(Part("stream", (*start, "pipeline", "stream", lineage), 300))
    if any(destination.is_batch for destination in settings.destinations):
        pause = every or settings.events.rotation_minutes * 60
        # a cycle finishes the load that is under way; a large one takes its time
        found.append(Part("pipeline", (*start, "pipeline", "run", lineage, "--every", f"{pause:g}s"), 300))
    return found


def _text_lines(wanted: list[Part]) -> Callable[[str, str], None]:
    width = max(len(part.name) for part in wanted)
    colours = {part.name: COLOURS[index % len(COLOURS)] for index, part in enumerate(wanted)}

    def tell(name: str, line: str) -> None:
        # click leaves the colours out where nobody would see them
        click.echo(f"{click.style(name.ljust(width), fg=colours[name])} | {line}", err=True)

    return tell


def _json_lines(name: str, line: str) -> None:
    """What a part prints as JSON stays JSON, with its part beside the rest; other lines become its text."""
    try:
        said = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        said = {"text": line}
    click.echo(msgspec.json.encode({"part": name} | said), err=True)


async def _run(wanted: list[Part], tell: Callable[[str, str], None]) -> int:
    supervisor = Supervisor(wanted, tell)
    loop = asyncio.get_running_loop()
    asked = False

    def stopping(number: int) -> None:
        nonlocal asked
        if asked:
            for process in supervisor.processes.values():
                os.killpg(process, signal.SIGKILL)
            os._exit(128 + number)
        asked = True
        click.echo("stopping everything in order; once more quits at once", err=True)
        supervisor.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping, number)
    return await supervisor.run()
