"""`headwater up`: server and pipeline as processes of one supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater.cli.options import Duration, with_settings
from headwater.cli.output import echo
from headwater.cli.server.process import READY, announce_ready, configure_logging
from headwater.cli.server.signals import Signals
from headwater.formats.printable import printable_line
from headwater.log.backup import refuse_half_restored
from headwater.settings import Settings
from headwater.system.durable_files import FolderLock

logger = logging.getLogger(__name__)

MISCONFIGURED = 2  # the exit code of a part that a restart cannot repair
FAILED = 1
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0  # after running this long, a part restarts with the first pause again
LINE_BYTES = 1 << 20  # the longest line that is passed on
PR_SET_PDEATHSIG = 1


class Part(msgspec.Struct, frozen=True):
    """One process: the name in front of its lines, its command line, and how long it may take to stop."""

    name: str
    arguments: tuple[str, ...]
    stop_seconds: float = 30.0


class Supervisor:
    """Runs parts until `stop` is called or one of them exits because its configuration is wrong.

    Parts stop one after the other in the order of `parts`: the gateway first, so that the pipeline can finish
    the events that it accepted. `print_line` receives the name of a part and one line of its output.
    """

    def __init__(self, parts: Sequence[Part], print_line: Callable[[str, str], None]) -> None:
        self._parts = tuple(parts)
        self._print_line = print_line
        self._running: dict[str, asyncio.subprocess.Process] = {}
        # Held while a part is started, so that no part starts after `_end` has looked for it.
        self._starting = {part.name: asyncio.Lock() for part in parts}
        self._stopping = asyncio.Event()
        self._exit_code = 0

    def stop(self) -> None:
        """Begin to stop; `run` returns when all parts have ended."""
        self._stopping.set()

    def kill(self) -> None:
        """Send SIGKILL to every part and to the processes of its group; from any thread."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every part; from any thread."""
        for process in list(self._running.values()):
            _signal(process, number)

    async def run(self) -> int:
        """Run the parts; return 0, 1 if a part stopped late or with an error, 2 for a wrong configuration."""
        tasks = [asyncio.create_task(self._keep_running(part)) for part in self._parts]
        await self._stopping.wait()
        for part in self._parts:
            await self._end(part)
        await asyncio.gather(*tasks)
        return self._exit_code

    async def _keep_running(self, part: Part) -> None:
        """Start a part, and restart it when it dies, after a pause that grows."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_once(part)
            if self._stopping.is_set():
                return
            if code == MISCONFIGURED:
                logger.error("The configuration of %s is wrong; stopping all parts.", part.name)
                self._exit_code = MISCONFIGURED
                self._stopping.set()
                return
            if time.monotonic() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            logger.error("%s ended (%s); it restarts in %.0f s.", part.name, _how(code), pause)
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pass
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _run_once(self, part: Part) -> int:
        async with self._starting[part.name]:
            if self._stopping.is_set():
                return 0
            try:
                process = await asyncio.create_subprocess_exec(
                    *part.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    limit=LINE_BYTES,
                    # Ctrl-C signals the terminal's whole process group; parts must stop in order instead.
                    start_new_session=True,
                    preexec_fn=_die_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                logger.error("%s cannot be started: %s.", part.name, error)
                return FAILED
            self._running[part.name] = process
        try:
            assert process.stdout is not None
            await self._print_lines(part.name, process.stdout)
            return await process.wait()
        finally:
            del self._running[part.name]

    async def _print_lines(self, name: str, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                line = b"(a line that was too long is left out)\n"
            if not line:
                return
            self._print_line(name, line.decode(errors="replace").rstrip("\r\n"))

    async def _end(self, part: Part) -> None:
        """Send SIGTERM to a part and wait; send SIGKILL when its time is over."""
        async with self._starting[part.name]:
            process = self._running.get(part.name)
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        try:
            code = await asyncio.wait_for(process.wait(), part.stop_seconds)
        except TimeoutError:
            logger.error("%s did not stop within %.0f s; it is killed.", part.name, part.stop_seconds)
            _signal(process, signal.SIGKILL)
            code = await process.wait()
        # SIGTERM ends a part that has not installed its signal handler yet.
        if code not in (0, -signal.SIGTERM) and self._exit_code == 0:
            logger.error("%s ended with an error (%s).", part.name, _how(code))
            self._exit_code = FAILED


def _die_with_parent() -> None:
    # If the supervisor is killed with SIGKILL, its parts must not keep the lock of the data folder.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
    except ProcessLookupError:
        pass  # It has ended meanwhile.


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# Both forms of a line: text, and JSON, where a quotation mark ends the text.
PART_READY = re.compile(rf'(?:^|"text":"){READY}([^"]*)')
ALL_READY = re.compile(rf'(?:^|"text":"){READY}.*\(all parts, after ')
POLL_SECONDS = 0.05

COLOURS = ("cyan", "magenta", "green", "yellow", "blue")


@click.command("up")
@click.option(
    "--every",
    type=Duration(),
    help="Run a cycle of the pipeline at this interval; default: as soon as a file is complete.",
)
@click.option("--wait", is_flag=True, help="Return when all parts are ready; they go on in the background.")
@with_settings
@click.pass_context
def command(ctx: click.Context, settings: Settings, every: float | None, wait: bool) -> None:
    """Run server and pipeline together, and restart a part that dies.

    The pipeline runs if there are destinations, in the `mode` of each, batch or stream. A part that dies
    restarts after a pause that grows from one second to a minute. SIGTERM or Ctrl-C stops the parts in order:
    the gateway first, then the pipeline. Ctrl-C then exits at once, which loses no acknowledged event.
    SIGHUP is passed on: the server reads keys, tokens and outlets again.

    When all parts can do their work, a line says what to open. With --wait the command returns then, and the
    parts go on in the background, with their output in `up.log` of the data folder; `headwater down` stops
    them.

    Exit codes: 0 stopped by a signal, or ready with --wait; 1 a part did not stop in time or ended with an
    error; 2 the configuration of a part is wrong.
    """
    config = ctx.params.get("config") or ctx.find_root().obj
    refuse_half_restored(Path(settings.data_dir))
    folder = supervisor_folder(settings)
    if wait:
        again = ("-c", str(Path(config).resolve())) if config else ()
        pause = ("--every", f"{every:g}s") if every else ()
        debug = ("-v",) if settings.log_level == "debug" else ()
        command = [sys.executable, "-m", "headwater", *debug, *again, "up", *pause]
        ctx.exit(_start_and_wait(command, folder))
    configure_logging(settings)
    wanted = parts(settings, config, every)
    print_line = _json_line if settings.log_format == "json" else _text_line(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        ctx.exit(asyncio.run(_run(wanted, Readiness(settings, wanted, print_line))))
    finally:
        lock.release()


def supervisor_folder(settings: Settings) -> Path:
    """The folder whose lock names the process of `headwater up`."""
    return Path(settings.data_dir) / "up"


def _start_and_wait(command: list[str], folder: Path) -> int:
    """Start the command in the background and wait until it is ready; return its exit code if it ends before.

    The output is copied until then, so that a person sees why it takes long or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.parent / "up.log"
    with path.open("ab") as output, path.open("rb") as lines:
        lines.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while True:
                line = lines.readline()
                if line:
                    text = line.decode(errors="replace").rstrip("\n")
                    echo(text, err=True)
                    if ALL_READY.search(text):
                        echo(f"output in {path}; `headwater down` stops it", err=True)
                        return 0
                elif (code := process.poll()) is not None:
                    return code or FAILED
                else:
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            process.terminate()
            raise


def parts(settings: Settings, config: str | None = None, every: float | None = None) -> list[Part]:
    """The processes that the settings need, in the order in which they stop."""
    debug = ("-v",) if settings.log_level == "debug" else ()  # it may have been typed for `up` alone
    start = (sys.executable, "-m", "headwater", *debug, *(("-c", config) if config else ()))
    # `serve` alone leaves the graph off unless it is set; `up` turns it on unless it is set to off.
    graph = "--no-graph" if settings.graph.enabled is False else "--graph"
    found = [Part("gateway", (*start, "serve", graph), settings.gateway.shutdown_timeout_seconds + 10)]
    own = settings.pipeline.lineage.enabled
    lineage = "--lineage" if (own if own is not None else graph == "--graph") else "--no-lineage"
    if any(destination.is_stream for destination in settings.destinations):
        found.append(Part("stream", (*start, "pipeline", "stream", lineage), 300))
    if any(destination.is_batch for destination in settings.destinations):
        when = ("--every", f"{every:g}s") if every else ("--follow",)
        # A cycle finishes the load in progress, which may be large.
        found.append(Part("pipeline", (*start, "pipeline", "run", lineage, *when), 300))
    return found


class Readiness:
    """Passes on the lines of the parts, and adds one when each part has said that it is ready."""

    def __init__(
        self, settings: Settings, wanted: Sequence[Part], print_line: Callable[[str, str], None]
    ) -> None:
        self._settings = settings
        self._print_line = print_line
        self._waiting = {part.name for part in wanted}
        self._next_steps = ""
        self._began = time.monotonic()

    def __call__(self, name: str, line: str) -> None:
        self._print_line(name, line)
        found = PART_READY.search(line)
        if found is None or name not in self._waiting:
            return
        self._waiting.remove(name)
        self._next_steps = self._next_steps or (found[1] if name == "gateway" else "")
        if not self._waiting:
            seconds = time.monotonic() - self._began
            announce_ready(self._settings, f"{self._next_steps} (all parts, after {seconds:.1f} s)")


def _text_line(wanted: list[Part]) -> Callable[[str, str], None]:
    width = max(len(part.name) for part in wanted)
    colours = {part.name: COLOURS[index % len(COLOURS)] for index, part in enumerate(wanted)}

    def print_line(name: str, line: str) -> None:
        # click omits the colours if stderr is not a terminal.
        click.echo(f"{click.style(name.ljust(width), fg=colours[name])} | {printable_line(line)}", err=True)

    return print_line


def _json_line(name: str, line: str) -> None:
    """Print a part's line as JSON with the name of the part; a line that is not JSON becomes `text`."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        fields = {"text": line}
    echo(msgspec.json.encode({"part": name} | fields).decode(), err=True)


async def _run(wanted: list[Part], print_line: Callable[[str, str], None]) -> int:
    supervisor = Supervisor(wanted, print_line)
    loop = asyncio.get_running_loop()
    Signals(
        lambda: loop.call_soon_threadsafe(supervisor.stop),
        "the gateway first, then the pipeline",
        exit_now=supervisor.kill,
        reload=lambda: supervisor.signal(signal.SIGHUP),
    )
    return await supervisor.run()
