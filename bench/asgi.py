"""The peer of the sidecar benchmark: the same work per event as an ASGI application under uvicorn.

Same validator, same log, same answer, one worker on uvloop and httptools. The events of one turn of the loop
are appended together, as the gateway does it. Only the HTTP layer differs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import uvicorn

from headwater.errors import HeadwaterError
from headwater.gateway.openlineage_validator import Validator
from headwater.log.queue.log import Log

__all__ = ["Application"]

Scope = dict[str, Any]
JSON = (b"content-type", b"application/json")


class Application:
    """POST anything; 200 when it is valid and on disk."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._validator = Validator()
        self._bodies: list[bytes] = []
        self._futures: list[asyncio.Future[None]] = []

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Scope]],
        send: Callable[[Scope], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        status, content = 200, b'{"status":"success"}'
        if self._validator.check(orjson.loads(body)).errors:
            status, content = 400, b'{"status":"failed"}'
        else:
            await self._store(body)
        headers = [JSON, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _store(self, body: bytes) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if not self._bodies:
            loop.call_soon(self._append_turn, loop)
        committed: asyncio.Future[None] = loop.create_future()
        self._bodies.append(body)
        self._futures.append(committed)
        return committed

    def _append_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        bodies, futures = self._bodies, self._futures
        self._bodies, self._futures = [], []
        self._log.append(bodies, self._committed, (loop, futures))

    def _committed(self, receipts: list[Any], error: HeadwaterError | None) -> None:
        receipts[0][0].call_soon_threadsafe(self._release, receipts, error)

    def _release(self, receipts: list[Any], error: HeadwaterError | None) -> None:
        for _, futures in receipts:
            for future in futures:
                if future.cancelled():
                    continue
                future.set_exception(error) if error else future.set_result(None)


if __name__ == "__main__":
    uvicorn.run(
        Application(Log.open(Path(sys.argv[2]))),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        lifespan="off",
        log_level="warning",
    )
