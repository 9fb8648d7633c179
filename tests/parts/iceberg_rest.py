"""A real REST catalog for tests: the server that Iceberg publishes for testing clients, in one JVM.

Its catalog is a SQLite database, and its tables are files of one folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.parts import maven
from tests.parts.kafka_broker import find_java

__all__ = ["ICEBERG_VERSION", "IcebergRestServer", "find_server"]

ICEBERG_VERSION = "1.10.0"
START_SECONDS = 90  # a cold JVM on a busy machine; it takes about 3


def find_server() -> Path:
    """The server's jar, which has all that it needs; raises Missing."""
    folder = maven.jars(
        f"iceberg-rest-{ICEBERG_VERSION}", f"org.apache.iceberg:iceberg-open-api:{ICEBERG_VERSION}"
    )
    return next(folder.glob("*.jar"))


class IcebergRestServer:
    """A server with its tables in `folder`; it keeps them and its port over kill and restart."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._command = [find_java(), "-Xmx512m", "-jar", str(find_server())]
        self._log = folder / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.warehouse = (folder / "warehouse").as_uri()
        self._environment = os.environ | {
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
            "CATALOG_WAREHOUSE": self.warehouse,
            "CATALOG_REST_PORT": str(self._port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and return once it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the REST catalog did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> IcebergRestServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
