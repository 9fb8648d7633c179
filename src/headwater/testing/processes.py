"""Headwater as a process of its own: started, killed, restarted, its output collected.

with HeadwaterProcess(folder, "serve", settings={"gateway": {"port": 0}}) as server:
    httpx.post(f"{server.url}/api/v1/lineage", json=event)
    server.kill()
    server.start()
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

START_SECONDS = 120.0  # generous: the machine may be busy
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
TAIL_CHARACTERS = 5_000


def free_port() -> int:
    """A port of loopback that no process listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class PythonProcess:
    """A Python command in a process group of its own, whose output is appended to `<name>.txt`.

    The process is not running until `start` or `with`; after `kill` or `stop` it can be started again.
    `listens` is a regular expression whose first group is the URL in the line that the process prints when
    it listens.
    """

    listens = r"listens on (http[^\s,]+)"

    def __init__(
        self, folder: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.name = name
        self.kills = 0
        self._arguments = [sys.executable, *arguments]
        self._environment = environment
        self._output = folder / f"{name}.txt"
        self._began = 0  # size of the output at the last start
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, crash_point: str = "") -> Self:
        """Start the process; with a crash point it kills itself there (`headwater.system.crash_points`)."""
        environment = dict(os.environ if self._environment is None else self._environment)
        if crash_point:
            environment["HEADWATER_CRASH_POINT"] = crash_point
        with self._output.open("ab") as output:
            self._began = output.tell()
            self._process = subprocess.Popen(
                self._arguments,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last start, negative for a signal; None while it runs, or before."""
        return None if self._process is None else self._process.poll()

    @property
    def output(self) -> str:
        """The output since the last start."""
        with self._output.open("rb") as file:
            file.seek(self._began)
            return file.read().decode(errors="replace")

    @property
    def url(self) -> str:
        """Its address, once it listens; RuntimeError if it ends before."""
        deadline = time.monotonic() + START_SECONDS
        while (found := re.search(self.listens, self.output)) is None:
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not listen; its output: {self.tail()}")
            time.sleep(POLL_SECONDS)
        return found[1]

    @property
    def port(self) -> int:
        """Its port, once it listens."""
        return int(self.url.rpartition(":")[2])

    def tail(self) -> str:
        """The end of the output since the last start."""
        return self.output[-TAIL_CHARACTERS:]

    def wait(self, seconds: float = STOP_SECONDS) -> int | None:
        """Wait for the end; return the exit code, or None if the process still runs after `seconds`."""
        try:
            return self._started.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.is_running:
            self._started.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = STOP_SECONDS) -> int | None:
        """Stop the process by a signal, or kill it after `seconds`; return the exit code, if it was begun."""
        if self._process is None:
            return None
        self.send_signal(number)
        if self.wait(seconds) is None:
            self._kill()
        return self.exit_code

    def kill(self) -> None:
        """Send SIGKILL to the process and the processes of its group, such as a JVM."""
        self.kills += 1
        self._kill()

    def _kill(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has ended, and so has its group.
        self._process.wait()

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()


class HeadwaterProcess(PythonProcess):
    """A `headwater` command with the configuration `<folder>/headwater.yml`, written from `settings`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        settings: Mapping[str, Any] | None = None,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        interpreter: Sequence[str] = ("-m", "headwater"),
    ) -> None:
        """`interpreter` are the arguments of Python that run the command line."""
        self.config = folder / "headwater.yml"
        if settings is not None:
            # JSON is YAML.
            self.config.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))
        command = [*interpreter, "-c", str(self.config), *arguments]
        super().__init__(folder, name or arguments[0], command, environment)


class OpenLineageProcess(PythonProcess):
    """An `OpenLineageServer` on a fixed port, with a journal that survives its death."""

    def __init__(self, folder: Path, *, name: str = "backend", refuse: str = "") -> None:
        """Events that contain the text `refuse` are refused."""
        self.journal = folder / "received.ndjson"
        self._port = free_port()
        command = ["-m", "headwater.testing.openlineage_server"]
        command += ["--port", str(self._port), "--journal", str(self.journal)]
        super().__init__(folder, name, [*command, *(("--refuse", refuse) if refuse else ())])

    @property
    def url(self) -> str:
        """Its address, also while it does not run."""
        return f"http://127.0.0.1:{self._port}"

    def events(self) -> list[Any]:
        """The accepted events, in order; a line that a kill left unfinished is not among them."""
        lines = self.journal.read_bytes().split(b"\n")[:-1] if self.journal.exists() else []
        return [msgspec.json.decode(line) for line in lines]
