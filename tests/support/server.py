"""A real `headwater serve` for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from headwater.testing.processes import HeadwaterProcess

__all__ = ["EVENT", "Server"]

EVENT = {
    "eventType": "COMPLETE",
    "eventTime": "2026-01-31T12:00:00Z",
    "run": {"runId": "01941f29-7c00-7000-8000-000000000001"},
    "job": {"namespace": "tests", "name": "serve"},
    "producer": "https://producer.example",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}
# Writes the names of all imported modules when it ends.
RUN = """
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path("modules.txt").write_text("\\n".join(sys.modules)))
from headwater.cli.main import main
main()
"""


class Server(HeadwaterProcess):
    """Started in a folder of its own, on a free port; after its end, `modules` are those it imported."""

    def __init__(
        self, folder: Path, settings: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> None:
        super().__init__(
            folder,
            "serve",
            settings={"gateway": {"port": 0}} | (settings or {}),
            environment=env,
            interpreter=("-c", RUN),
        )
        self.start()

    def post(self, event: Any = EVENT) -> httpx2.Response:
        return httpx2.post(f"{self.url}/api/v1/lineage", json=event)

    def modules(self) -> list[str]:
        return (self.folder / "modules.txt").read_text(encoding="utf-8").split()
