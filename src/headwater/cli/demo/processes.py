"""The actors of the demo: two processes that can be killed, and a producer that counts."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.queue import offline as inspect

__all__ = ["Backend", "Journey", "Producer", "Server", "Sidecar", "free_port"]

START_SECONDS = 20.0


class Journey(msgspec.Struct):
    """What became of the producer's events."""

    sent: int
    acknowledged: int
    delivered: int
    duplicates: int
    lost: int
    out_of_order: int
    kills: int = 0
    seconds: float = 0.0


def free_port() -> int:
    """A port that nobody listens on now; it is kept over restarts, as a real installation would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A server of its own process, which prints into a file."""

    kills = 0
    stop_seconds = 30.0

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._output = folder / f"{name}.txt"
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> Sequence[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start, and wait until it listens."""
        with self._output.open("ab") as output:
            self._process = self._popen(output)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise HeadwaterError(
                        f"The {self._name} of the demo did not start.", hint=f"It printed: {self.printed()}"
                    ) from None
                time.sleep(0.02)

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def printed(self) -> str:
        """The end of what it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _popen(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *self.arguments()], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        type(self).kills += 1
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM; may be called when it is not running."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Backend(Server):
    """A small OpenLineage backend that writes what it takes into a journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "backend", free_port())
        self._journal = folder / "received.ndjson"

    def arguments(self) -> Sequence[str]:
        return (
            "headwater.testing.openlineage_server", "--port", str(self.port), "--journal", str(self._journal),
        )  # fmt: skip

    def journal(self) -> list[Any]:
        """The events that it took, in order."""
        lines = self._journal.read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line) for line in lines]


class Sidecar(Server):
    """`headwater serve` in front of the backend."""

    def __init__(self, folder: Path, backend_url: str) -> None:
        super().__init__(folder, "sidecar", free_port())
        self._config = folder / "headwater.yml"
        self._data = folder / "data"
        settings = {
            "data_dir": str(self._data),
            "gateway": {"port": self.port},
            "outlets": [
                {
                    "name": "backend",
                    "type": "openlineage",
                    "url": backend_url,
                    # impatient, so that the demo is short
                    "retry": {"initial_seconds": 0.1, "max_seconds": 0.5},
                }
            ],
        }
        # JSON is YAML too
        self._config.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))

    def arguments(self) -> Sequence[str]:
        return ("headwater", "serve", "--config", str(self._config))

    def waiting(self) -> int:
        """Events on disk that the backend has not taken, as `headwater status` sees them."""
        return sum(reader.lag_events for reader in inspect.stat(self._data / "log").readers)


class Producer:
    """Sends numbered events, one after the other, and remembers which were acknowledged."""

    def __init__(self, url: str) -> None:
        try:
            from openlineage.client import OpenLineageClient
        except ModuleNotFoundError:
            raise HeadwaterError(
                "The demo needs the openlineage-python client.", hint="Type: pip install 'headwater[spool]'"
            ) from None
        transport = {"type": "http", "url": url}
        self._clients = {
            "plain": OpenLineageClient(config={"transport": dict(transport)}),
            "gzip": OpenLineageClient(config={"transport": {**transport, "compression": "gzip"}}),
        }
        self._run_id = str(uuid.uuid4())
        self.sent = 0
        self.acknowledged: list[int] = []
        self._marker = 0

    def _event(self, number: int) -> Any:
        from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState

        return RunEvent(
            eventType=RunState.RUNNING,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(runId=self._run_id),
            job=Job(namespace="demo", name="numbers"),
            outputs=[OutputDataset(namespace="demo", name=str(number))],
            producer="urn:headwater:demo",
        )

    def send(self, count: int, how: str) -> None:
        """Send so many more events; one that fails is not sent again and not counted as acknowledged."""
        for _ in range(count):
            self.sent += 1
            number = self.sent
            try:
                self._clients[how].emit(self._event(number))
            except Exception:  # noqa: S112 - the client has many, and all mean: not acknowledged
                continue
            self.acknowledged.append(number)

    @contextmanager
    def sending(self, count: int, how: str) -> Iterator[None]:
        """Send in the background meanwhile."""
        self._marker = self.sent
        thread = threading.Thread(target=self.send, args=(count, how))
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until so many of the events under way were sent."""
        while self.sent - self._marker < count:
            time.sleep(0.001)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def compare(self, journal: list[Any]) -> Journey:
        """Hold what the backend has against what was acknowledged."""
        numbers = [int(event["outputs"][0]["name"]) for event in journal]
        first_seen = list(dict.fromkeys(numbers))
        delivered = set(first_seen)
        return Journey(
            sent=self.sent,
            acknowledged=len(self.acknowledged),
            delivered=len(delivered),
            duplicates=len(numbers) - len(delivered),
            lost=len(set(self.acknowledged) - delivered),
            out_of_order=sum(after < before for before, after in pairwise(first_seen)),
            kills=Backend.kills + Sidecar.kills,
        )
