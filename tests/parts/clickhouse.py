"""The ClickHouse engine from a wheel, inside this process: one folder for all tests, a database for each."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.parts.cache import Missing

__all__ = ["ClickHouseEngine"]


class ClickHouseEngine:
    """Runs while it is entered; the engine has one folder per process."""

    def __init__(self) -> None:
        try:
            import chdb  # noqa: F401
            import clickhouse_connect
        except ImportError as error:
            raise Missing(
                f"the ClickHouse engine is missing ({error}): pip install chdb clickhouse-connect"
            ) from error
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-chdb-"))
        self.url = f"chdb://{self._folder}"
        self.client = clickhouse_connect.get_client(interface="chdb", path=str(self._folder))

    def database(self) -> str:
        """A name that no other test has."""
        return f"test {uuid.uuid4().hex}"

    def query(self, statement: str) -> list[dict[str, Any]]:
        return list(self.client.query(statement).named_results())

    def __enter__(self) -> ClickHouseEngine:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.client.close()
        shutil.rmtree(self._folder, ignore_errors=True)
