"""bqemulator, an imitation of BigQuery over DuckDB, as a server of its own in an environment of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from types import TracebackType

from tests.parts.cache import Missing
from tests.parts.venvs import python_with

__all__ = ["BigQueryEmulator"]

# its DuckDB must be the one for which the extension that it wants is to be had as a package
REQUIREMENTS = ("bqemulator==1.4.0", "duckdb==1.5.5", "duckdb-extension-spatial==1.5.5", "numpy")
INSTALL = """
import pathlib, duckdb, duckdb_extension_spatial as package
(file,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
duckdb.connect().execute(f"INSTALL '{file}'")
"""
START_SECONDS = 120


class BigQueryEmulator:
    """Runs while it is entered."""

    def __init__(self) -> None:
        python = python_with("bqemulator", *REQUIREMENTS)
        home = python.parents[1] / "home"
        # extensions are kept in the home folder: it has one of its own
        self._environment = {**os.environ, "HOME": str(home)}
        self._program = python.with_name("bqemulator")
        if not home.is_dir():
            home.mkdir()
            command = [str(python), "-c", INSTALL]
            made = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
            if made.returncode:
                home.rmdir()
                raise Missing(f"bqemulator's extension cannot be installed: {made.stderr.strip()[-300:]}")
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.port, self._grpc_port = (server.getsockname()[1] for server in held)
        for server in held:
            server.close()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> BigQueryEmulator:
        ports = ["--rest-port", str(self.port), "--grpc-port", str(self._grpc_port)]
        self._process = subprocess.Popen(
            [str(self._program), "start", *ports, "--log-level", "error"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError("bqemulator did not start")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/bigquery/v2/projects/p/datasets", timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return True
