"""The machine's Redis server, on a socket in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tests.parts.cache import Missing

__all__ = ["RedisServer"]

DEADLINE_SECONDS = 30.0


class RedisServer:
    """Runs while it is entered."""

    def __init__(self) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise Missing("no redis-server is on PATH; install one, such as Debian's package redis-server")
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-redis-"))
        self._socket = self._folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._command = [
            program,
            "--port",
            "0",
            "--unixsocket",
            str(self._socket),
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        self._process = self._started()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.unlink(missing_ok=True)

    def start(self) -> None:
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + DEADLINE_SECONDS
        while not self._socket.exists():
            if process.poll() is not None or time.monotonic() > limit:
                process.kill()
                raise Missing(f"{self._command[0]} does not start here")
            time.sleep(0.02)
        return process

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
