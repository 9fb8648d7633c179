"""Several processes as one: started together, restarted when they die, stopped in order.

Each part is a process of its own, so that Spark's memory, a crash or a `kill -9` in one of them touches no
other. What they print goes through here, each line with its part's name.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

__all__ = ["FAILED", "MISCONFIGURED", "Part", "Supervisor"]

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
