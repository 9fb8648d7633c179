"""fakesnow, an imitation of Snowflake over DuckDB, as a server of its own.

Run as a program, by the interpreter of fakesnow's own environment, it is that server with four repairs,
without which a current client of Snowflake's, or a transaction, would not get far:

    login           the answer has the master token and the session id that Snowflake sends
    PUT             the answer has the region and says that the file may be overwritten
    MERGE           is DuckDB's own; fakesnow's writes two databases, which no transaction of DuckDB's may.
                    It does not tell how many rows it changed
    NOT NULL        a violation is Snowflake's error 100072, not an internal one of the server's
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from types import TracebackType
from typing import Any

__all__ = ["FakeSnow"]

REQUIREMENTS = ("fakesnow[server]==0.12.1", "snowflake-connector-python<4")
START_SECONDS = 120


class FakeSnow:
    """Runs while it is entered."""

    def __init__(self) -> None:
        from tests.parts.venvs import python_with

        self._python = python_with("fakesnow", *REQUIREMENTS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def parameters(self) -> dict[str, str | int | bool]:
        """What the client needs to find it."""
        return {"host": "127.0.0.1", "port": self.port, "protocol": "http"}

    def __enter__(self) -> FakeSnow:
        self._process = subprocess.Popen(
            [str(self._python), __file__, str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError("fakesnow did not start")
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
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/session/heartbeat", timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return True


def serve(port: int) -> None:
    """The server, with its repairs; in its own environment."""
    import importlib
    import json

    duckdb: Any = importlib.import_module("duckdb")
    uvicorn: Any = importlib.import_module("uvicorn")
    server: Any = importlib.import_module("fakesnow.server")
    transforms: Any = importlib.import_module("fakesnow.transforms")
    cursors: Any = importlib.import_module("fakesnow.cursor")
    errors: Any = importlib.import_module("snowflake.connector.errors")
    sqlglot: Any = importlib.import_module("sqlglot")
    starlette: Any = importlib.import_module("starlette.applications")
    responses: Any = importlib.import_module("starlette.responses")
    routing: Any = importlib.import_module("starlette.routing")

    async def login(request: Any) -> Any:
        answer = await server.login_request(request)
        body = json.loads(answer.body)
        data = body.get("data") or {}
        data |= {"masterToken": data.get("token"), "sessionId": 1, "validityInSeconds": 3_600}
        return responses.JSONResponse(body | {"data": data}, status_code=answer.status_code)

    def merge(expression: Any) -> list[Any]:
        if not isinstance(expression, sqlglot.exp.Merge):
            return [expression]
        return [expression, sqlglot.parse_one("SELECT 0 AS unknown", read="duckdb")]

    stage_info = server.gcs_stage_info

    def with_region(request: Any, expression: Any, data: Any) -> dict[str, Any]:
        data |= {"overwrite": True, "encryptionMaterial": []}
        made: dict[str, Any] = stage_info(request, expression, data)
        return {"region": "us-central1", "isClientSideEncrypted": False, **made}

    execute = cursors.FakeSnowflakeCursor.execute

    def with_refusals(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return execute(self, *arguments, **named)
        except duckdb.ConstraintException as error:
            text = f"NULL result in a non-nullable column: {error}"
            raise errors.ProgrammingError(msg=text, errno=100072, sqlstate="22000") from error

    server.gcs_stage_info = with_region
    transforms.merge = merge
    cursors.FakeSnowflakeCursor.execute = with_refusals
    repaired = {server.login_request: login}
    routes = [
        routing.Route(route.path, repaired.get(route.endpoint, route.endpoint), methods=route.methods)
        for route in server.routes
    ]
    uvicorn.run(starlette.Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
