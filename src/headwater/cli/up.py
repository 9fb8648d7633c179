"""`headwater up`: everything that the configuration names, as one supervised tree of processes."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from headwater.cli.logging_setup import print_lines
from headwater.cli.options import with_settings
from headwater.cli.pipeline.run import Duration
from headwater.settings import Settings

__all__ = ["FAILED", "MISCONFIGURED", "Part", "Supervisor", "command", "parts"]


log = logging.getLogger(__name__)


MISCONFIGURED = 2  # the exit code by which a part says that a restart cannot help


FAILED = 1


FIRST_PAUSE_SECONDS = 1.0


LONGEST_PAUSE_SECONDS = 60.0


# A part that lived this long was well; its next death begins again with the first pause.
STEADY_SECONDS = 60.0


LINE_BYTES = 1 << 20  # the longest line that is passed on whole


PR_SET_PDEATHSIG = 1


class Part(msgspec.Struct, frozen=True):
    """One process: its name in front of its lines, what to run, and how long it may take to stop."""

    name: str
    arguments: tuple[str, ...]
    stop_seconds: float = 30.0


class Supervisor:
    """Runs parts until it is told to stop, or one of them says that its configuration is wrong.

    Stopping goes in the order of `parts`, one after the other: what takes events in stops first, so that what
    comes behind it can finish what there is. `tell` gets each line, with the name of its part.
    """

    def __init__(self, parts: Sequence[Part], tell: Callable[[str, str], None]) -> None:
        self._parts = tuple(parts)
        self._tell = tell
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self.restarts: dict[str, int] = dict.fromkeys((part.name for part in parts), 0)

    @property
    def processes(self) -> dict[str, int]:
        """Process ids of the parts that run now."""
        return {name: process.pid for name, process in self._running.items()}

    def stop(self) -> None:
        """Begin to stop; `run` returns when all have ended."""
        self._stopping.set()

    async def run(self) -> int:
        """The exit code: 0, or 1 where a part did not stop by itself, or 2 where one is misconfigured."""
        tasks = [asyncio.create_task(self._keep(part)) for part in self._parts]
        await self._stopping.wait()
        for part in self._parts:
            await self._end(part)
        await asyncio.gather(*tasks)
        return self._exit_code

    async def _keep(self, part: Part) -> None:
        """Start a part, and start it again whenever it dies, after a pause that grows."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._once(part)
            if self._stopping.is_set():
                return
            if code == MISCONFIGURED:
                log.error("%s says that its configuration is wrong; stopping everything.", part.name)
                self._exit_code = MISCONFIGURED
                self._stopping.set()
                return
            if time.monotonic() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.error("%s ended (%s); it is started again in %.0f s.", part.name, _how(code), pause)
            self.restarts[part.name] += 1
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pass
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _once(self, part: Part) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *part.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES,
                # Ctrl-C reaches the whole group of a terminal; the order of stopping is ours to keep.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            log.error("%s cannot be started: %s.", part.name, error)
            return FAILED
        self._running[part.name] = process
        try:
            assert process.stdout is not None
            await self._pass_on(part.name, process.stdout)
            return await process.wait()
        finally:
            del self._running[part.name]

    async def _pass_on(self, name: str, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                line = b"(a line that was too long is left out)\n"
            if not line:
                return
            self._tell(name, line.decode(errors="replace").rstrip("\r\n"))

    async def _end(self, part: Part) -> None:
        """Ask a part to stop and wait; kill it when its time is over."""
        process = self._running.get(part.name)
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        try:
            code = await asyncio.wait_for(process.wait(), part.stop_seconds)
        except TimeoutError:
            log.error("%s did not stop within %.0f s; it is killed.", part.name, part.stop_seconds)
            _signal(process, signal.SIGKILL)
            code = await process.wait()
        if code != 0 and self._exit_code == 0:
            log.error("%s ended badly (%s).", part.name, _how(code))
            self._exit_code = FAILED


def _die_with_parent() -> None:
    # Whoever kills the supervisor with -9 would otherwise leave parts behind that hold the folder's lock.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
    except ProcessLookupError:
        pass  # it ended by itself in between


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


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
