"""A third-party server as a process on loopback, for as long as tests need it."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

__all__ = ["LoopbackServer", "free_port"]

START_SECONDS = 120  # on a busy machine; each takes a few


def free_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class LoopbackServer:
    """Runs while it is entered. `name` is for the error; with a `path`, it is up when it answers there."""

    name: str
    path: str | None = None

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str] | None:
        """None: that of the tests."""
        return None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self.command(),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError(f"{self.name} did not start")
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
            if self.path is None:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            else:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.path}", timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()  # whatever it says, it is there
        except OSError:
            return False
        return True
