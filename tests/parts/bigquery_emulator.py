"""bqemulator, an imitation of BigQuery over DuckDB, as a server of its own in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.parts.cache import Missing, locked
from tests.parts.loopback import LoopbackServer, free_port
from tests.parts.venvs import python_with

__all__ = ["BigQueryEmulator"]

# its DuckDB must be the one for which the extension that it wants is to be had as a package
REQUIREMENTS = ("bqemulator==1.4.0", "duckdb==1.5.5", "duckdb-extension-spatial==1.5.5", "numpy")
INSTALL = """
import pathlib, duckdb, duckdb_extension_spatial as package
(file,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
duckdb.connect().execute(f"INSTALL '{file}'")
"""


class BigQueryEmulator(LoopbackServer):
    """Runs while it is entered."""

    name = "bqemulator"
    path = "/bigquery/v2/projects/p/datasets"

    def __init__(self) -> None:
        python = python_with("bqemulator", *REQUIREMENTS)
        home = python.parents[1] / "home"
        # extensions are kept in the home folder: it has one of its own
        self._environment = {**os.environ, "HOME": str(home)}
        self._program = python.with_name("bqemulator")
        with locked("bqemulator"):
            self._install_extension(python, home)
        super().__init__()
        self._grpc_port = free_port()

    def _install_extension(self, python: Path, home: Path) -> None:
        if home.is_dir():
            return
        home.mkdir()
        command = [str(python), "-c", INSTALL]
        made = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if made.returncode:
            home.rmdir()
            raise Missing(f"bqemulator's extension cannot be installed: {made.stderr.strip()[-300:]}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        ports = ["--rest-port", str(self.port), "--grpc-port", str(self._grpc_port)]
        return [str(self._program), "start", *ports, "--log-level", "error"]

    def environment(self) -> Mapping[str, str]:
        return self._environment
