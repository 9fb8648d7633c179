"""A real server that speaks S3, for tests: moto's, as a process of its own on loopback."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

from tests.parts.cache import Missing

__all__ = ["ObjectStore"]

START_SECONDS = 120  # on a busy machine; it takes about 4
KEY, SECRET = "test-key", "test-secret"


class ObjectStore:
    """Runs while it is entered, with one bucket, `bucket`."""

    bucket = "headwater-tests"

    def __init__(self) -> None:
        if any(importlib.util.find_spec(name) is None for name in ("moto", "flask")):
            raise Missing("moto's server is missing: pip install 'moto[s3,server]'")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str) -> str:
        """A folder in the bucket, as pyarrow reads it; the secret is part of it."""
        where = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{KEY}:{SECRET}@{self.bucket}/{prefix}?{where}"

    def filesystem(self) -> Any:
        from pyarrow import fs

        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def objects(self, prefix: str = "") -> list[str]:
        """The names of all objects, or of those in a folder."""
        from pyarrow import fs

        folder = f"{self.bucket}/{prefix}".rstrip("/")
        selected = fs.FileSelector(folder, recursive=True, allow_not_found=True)
        found = self.filesystem().get_file_info(selected)
        return [each.path.removeprefix(f"{self.bucket}/") for each in found if each.is_file]

    def __enter__(self) -> ObjectStore:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError("moto's server did not start")
            time.sleep(0.1)
        self.filesystem().create_dir(self.bucket)
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
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
