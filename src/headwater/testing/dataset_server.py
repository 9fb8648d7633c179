"""A DataSet server for tests and benchmarks that enforces the rules of the real one."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

import orjson

from headwater.testing.http_server import Answer, Request, ScriptedServer

JSON = {"content-type": "application/json"}
SUCCESS = b'{"status":"success","message":"","bytesCharged":0}'


class DataSetServer(ScriptedServer):
    """Takes `POST /api/addEvents` and keeps the events of each session in `sessions`, in order.

    Two concurrent requests of a session, and a body of more than `max_bytes` before compression, are refused
    and recorded in `violations`; `stop` then fails the test. Sessions are spread over `queues` queue servers;
    one that `restart` stops answers 503.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "token",  # noqa: S107 - any will do
        latency_seconds: float = 0.0,
        queues: int = 8,
        max_bytes: int = 6_000_000,
        keeps_events: bool = True,
    ) -> None:
        super().__init__(host=host, port=port)
        self.latency_seconds = latency_seconds
        self.queues = queues
        self.sessions: dict[str, list[Any]] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self.bodies: list[Any] = []  # whole requests, parsed
        self.events = 0
        self.bytes = 0  # of accepted bodies, before compression
        self.most_at_once = 0
        self.violations: list[str] = []
        self._token = token
        self._max_bytes = max_bytes
        self._keeps = keeps_events
        self._busy: set[str] = set()
        self._down: dict[int, float] = {}

    def queue_of(self, session: str) -> int:
        """The queue server of a session."""
        return zlib.crc32(session.encode()) % self.queues

    def restart(self, queue: int, seconds: float) -> None:
        """Stop a queue server for some seconds."""
        self._down[queue] = time.monotonic() + seconds

    def restart_all(self, seconds_each: float) -> None:
        """Restart one queue server after the other, as a deployment does."""
        now = time.monotonic()

        async def roll() -> None:
            for queue in range(self.queues):
                self.restart(queue, now + (queue + 1) * seconds_each - time.monotonic())
                await asyncio.sleep(now + (queue + 1) * seconds_each - time.monotonic())

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(roll(), self._loop)

    def stop(self) -> None:
        super().stop()
        if self.violations:
            raise AssertionError("; ".join(self.violations[:10]))

    async def handle(self, request: Request, answer: Answer | None) -> Answer:
        if request.method != "POST" or request.path != "/api/addEvents":
            return Answer(status=404)
        if len(request.body) > self._max_bytes:
            self.violations.append(f"request {request.number} has {len(request.body)} bytes")
            return _error(413, "error/client/badParam", "the request is too large")
        sent = orjson.loads(request.body)
        session = sent["session"]
        if session in self._busy:
            self.violations.append(f"request {request.number} of session {session} overlaps another")
            return _error(409, "error/client/badParam", "one request at a time")
        self._busy.add(session)
        self.most_at_once = max(self.most_at_once, len(self._busy))
        try:
            if self.latency_seconds:
                await asyncio.sleep(self.latency_seconds)
            if answer is not None:
                if answer.delay_seconds:
                    await asyncio.sleep(answer.delay_seconds)
                if not answer.keeps:
                    return answer
            if self._down.get(self.queue_of(session), 0.0) > time.monotonic():
                return _error(503, "error/server/backoff", "this queue server restarts")
            if sent["token"] != self._token:
                return _error(401, "error/client/noPermission", "no such token")
            self._take(session, sent, len(request.body))
        finally:
            self._busy.discard(session)
        return answer or Answer(body=SUCCESS, headers=JSON)

    def _take(self, session: str, sent: Any, size: int) -> None:
        self.events += len(sent["events"])
        self.bytes += size
        if self._keeps:
            self.sessions.setdefault(session, []).extend(sent["events"])
            self.infos[session] = sent["sessionInfo"]
            self.bodies.append(sent)


def _error(status: int, kind: str, text: str) -> Answer:
    return Answer(status=status, headers=JSON, body=orjson.dumps({"status": kind, "message": text}))
