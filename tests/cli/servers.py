"""A real `headwater serve` for tests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

EVENT = {
    "eventType": "COMPLETE",
    "eventTime": "2026-01-31T12:00:00Z",
    "run": {"runId": "01941f29-7c00-7000-8000-000000000001"},
    "job": {"namespace": "tests", "name": "serve"},
    "producer": "https://producer.example",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}
# leaves the names of all modules behind when it ends
RUN = """
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path("modules.txt").write_text("\\n".join(sys.modules)))
from headwater.cli.main import main
main()
"""


class Server:
    """A process in a folder of its own; `.url` is known once it listens."""

    def __init__(
        self, folder: Path, settings: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        config = {"gateway": {"port": 0}} | (settings or {})
        (folder / "headwater.yml").write_text(json.dumps(config), encoding="utf-8")
        self._lines = folder / "lines.txt"
        with self._lines.open("wb") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, "serve"],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=lines,
            )

    @property
    def output(self) -> str:
        return self._lines.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := re.search(r"headwater listens on (\S+),", self.output):
                return found[1]
            assert self.process.poll() is None, self.output
            time.sleep(0.01)
        raise AssertionError(f"it does not listen: {self.output}")

    def post(self, event: Any = EVENT) -> httpx2.Response:
        return httpx2.post(f"{self.url}/api/v1/lineage", json=event)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code after the signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)
