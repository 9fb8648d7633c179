"""fakesnow as a server of its own: a program for the interpreter that snowflake_stand_in.py makes for it.

It is that server with four repairs, without which a current client of Snowflake's, or a transaction, would
not get far:

    login           the answer has the master token and the session id that Snowflake sends
    PUT             the answer has the region and says that the file may be overwritten
    MERGE           is DuckDB's own; fakesnow's writes two databases, which no transaction of DuckDB's may.
                    It does not report how many rows it changed
    NOT NULL        a violation is Snowflake's error 100072, not an internal one of the server's
"""

from __future__ import annotations

import sys
from typing import Any

__all__: list[str] = []


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
