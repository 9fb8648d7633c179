"""fakesnow, an imitation of Snowflake over DuckDB, in an environment of its own; see fakesnow_server.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.parts.loopback import LoopbackServer
from tests.parts.venvs import python_with

__all__ = ["REQUIREMENTS", "FakeSnow"]

REQUIREMENTS = ("fakesnow[server]==0.12.1", "snowflake-connector-python<4")


class FakeSnow(LoopbackServer):
    """Runs while it is entered."""

    name = "fakesnow"
    path = "/session/heartbeat"

    def __init__(self) -> None:
        self._python = python_with("fakesnow", *REQUIREMENTS)
        super().__init__()

    @property
    def parameters(self) -> dict[str, str | int | bool]:
        """What the client needs to find it."""
        return {"host": "127.0.0.1", "port": self.port, "protocol": "http"}

    def command(self) -> Sequence[str]:
        return [str(self._python), str(Path(__file__).with_name("fakesnow_server.py")), str(self.port)]
