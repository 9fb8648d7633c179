"""A load generator that costs far less than what it measures: raw requests, answers only counted.

`python -m bench.load PORT SECONDS CONNECTIONS` prints one JSON line. It runs as a process of its own, so
that it has the other core and shares no lock with the server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import cast

import orjson
import uvloop

from bench.samples import events

__all__ = ["Load"]

PATH = "/api/v1/lineage"


class Client(asyncio.Protocol):
    """One connection: sends the next request when the last one is answered."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number
        self._sent_at = 0.0
        self._answer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._number += 1
        self._sent_at = time.perf_counter()
        self.transport.write(self._load.requests[self._number % len(self._load.requests)])

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, gap, body = self._answer.partition(b"\r\n\r\n")
        if not gap:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
        if len(body) < length:
            return
        self._load.answered(head[9:12], time.perf_counter() - self._sent_at)
        self._answer = b""
        if not self._load.over:
            self._send()


class Load:
    """Keeps so many connections busy for so many seconds, and counts."""

    def __init__(self, bodies: list[bytes], path: str = PATH) -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: "
        self.requests = [head.encode() + b"%d\r\n\r\n" % len(body) + body for body in bodies]
        self.statuses: dict[str, int] = {}
        self.total = 0
        self.times: list[float] = []
        self.over = False

    def answered(self, status: bytes, seconds: float) -> None:
        name = status.decode()
        self.total += 1
        self.statuses[name] = self.statuses.get(name, 0) + 1
        self.times.append(seconds)

    async def run(self, port: int, seconds: float, connections: int) -> dict[str, object]:
        loop = asyncio.get_running_loop()
        clients = []
        for number in range(connections):
            _, client = await loop.create_connection(partial(Client, self, number * 37), "127.0.0.1", port)
            clients.append(client)
        await asyncio.sleep(min(1.0, seconds / 4))  # warm up: caches, first partition, branch predictors
        self.statuses.clear()
        self.times.clear()
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        took = time.perf_counter() - began
        statuses, times = dict(self.statuses), sorted(self.times)
        self.over = True
        await asyncio.sleep(0.2)
        for client in clients:
            client.transport.close()
        return {
            "events_per_second": statuses.get("200", 0) / took,
            "statuses": statuses,
            "total": self.total,
            "p50_ms": times[len(times) // 2] * 1000 if times else 0.0,
            "p99_ms": times[int(len(times) * 0.99)] * 1000 if times else 0.0,
        }


if __name__ == "__main__":
    port, seconds, connections = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    print(orjson.dumps(uvloop.run(Load(events(2000)).run(port, seconds, connections))).decode())
