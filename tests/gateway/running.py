"""A running gateway for tests: real sockets, a real log on disk, a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw
import httpx2
import uvloop

from headwater.clock import Clock, SystemClock
from headwater.events import Event
from headwater.gateway.event_routes import EventRoutes
from headwater.gateway.gateway import Gateway
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.metrics import Metrics
from headwater.settings import GatewaySettings, TokenSettings
from headwater.system.durable_files import Disk
from tests.log.event_parts import events_in

TOKENS = (
    TokenSettings(id="web", client_secret="web-client", server_secret="web-server"),
    TokenSettings(id="app", client_secret="app-client", origins=("https://shop.example", "*.example.org")),
)
PRODUCER = "https://example.com/producer"


def run_event(**changes: Any) -> dict[str, Any]:
    """A small compliant run event with a run of its own."""
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-01-01T00:00:00Z",
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": "tests", "name": "job"},
    } | changes


def run_bytes(**changes: Any) -> bytes:
    return json.dumps(run_event(**changes)).encode()


def post(body: bytes, *headers: str, path: str = "/api/v1/lineage") -> bytes:
    """The bytes of a POST with a Content-Length."""
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll until it holds; the limit is generous, since nothing here is about speed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Running:
    """`with Running(tmp_path, max_depth=5) as gateway: gateway.post(...)`."""

    def __init__(
        self,
        folder: Path,
        *,
        health: Callable[[], list[str]] = list,
        clock: Clock | None = None,
        vfs: str | None = None,
        prepare: Callable[[Gateway], None] = lambda gateway: None,
        tokens: Sequence[TokenSettings] = (),
        disk: Disk | None = None,
        **settings: Any,
    ) -> None:
        self.metrics = Metrics()
        self.settings = GatewaySettings(**{"port": 0, "shutdown_timeout_seconds": 5.0} | settings)
        self.log = Log.open(folder / "log", metrics=self.metrics, vfs=vfs)
        self.rejects = RejectStore(folder / "rejects.db", max_bytes=2**26, metrics=self.metrics)
        self.gateway = Gateway(
            self.settings,
            self.log,
            self.rejects,
            self.metrics,
            health=health,
            clock=clock or SystemClock(),
        )
        prepare(self.gateway)
        self.events_dir = folder / "events"
        self.incoming: Incoming | None = None
        if tokens:
            self.incoming = Incoming(self.events_dir, metrics=self.metrics, disk=disk)
            routes = EventRoutes(self.settings, tokens, self.incoming, self.metrics, clock=clock)
            routes.add(self.gateway.router)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="test-gateway", daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def __enter__(self) -> Running:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.gateway.start(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if self.incoming is not None:
            self.incoming.close()
        self.log.close()
        self.rejects.close()

    def stop(self) -> None:
        """Close the gateway; the log stays open."""
        asyncio.run_coroutine_threadsafe(self.gateway.close(), self._loop).result(30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=20, **options)

    def post(
        self, body: bytes, path: str = "/api/v1/lineage", headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        with self.client() as client:
            return client.post(
                path, content=body, headers={"content-type": "application/json"} | (headers or {})
            )

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
        with self.client() as client:
            return client.get(path, headers=headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.gateway.port), timeout=20)

    def talk(self, *parts: bytes, pause: float = 0.0) -> bytes:
        """Send raw bytes, close our half, return all that comes back."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def events(self) -> list[Event]:
        return self.log.reader("test").read(1, 1_000_000, 2**30)

    def bodies(self) -> list[bytes]:
        return [event.body for event in self.events()]

    @property
    def pending_bytes(self) -> float:
        return self.metrics.gauge("gateway_pending_bytes").values[()]

    @property
    def connections(self) -> float:
        return self.metrics.gauge("gateway_connections").values[()]

    def stored(self) -> list[tuple[str, dict[str, Any]]]:
        """All events of the incoming files, with their tokens; completes the files first."""
        assert self.incoming is not None
        self.incoming.rotate()
        return [
            (file.token_id, json.loads(line))
            for file in unprocessed(self.events_dir)
            for line in events_in(file.path)
        ]

    def count(self, name: str, *labels: str) -> float:
        return self.metrics.counter(name).values.get(labels, 0)

    def fates(self) -> tuple[float, float]:
        """How many events were received, and how many were accepted, refused or repeated."""
        names = ("received", "accepted", "refused", "repeated")
        received, *settled = (
            sum(self.metrics.counter(f"gateway_events_{name}").values.values()) for name in names
        )
        return received, sum(settled)

    def open_rejects(self) -> Sequence[Any]:
        return self.rejects.list("gateway", limit=1000)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def statuses(answer: bytes) -> list[int]:
    """The status codes of the answers in a stream of bytes."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


class FaultyVFS(apsw.VFS):
    """A file system whose writes fail while `trouble` holds an error of SQLite."""

    def __init__(self, name: str) -> None:
        self.trouble: type[apsw.Error] | None = None
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: Any) -> FaultyFile:  # noqa: N802
        return FaultyFile(self, name, flags)


class FaultyFile(apsw.VFSFile):
    def __init__(self, owner: FaultyVFS, name: Any, flags: Any) -> None:
        self._owner = owner
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        if self._owner.trouble is not None:
            raise self._owner.trouble("a test's disk")
        super().xWrite(data, offset)
