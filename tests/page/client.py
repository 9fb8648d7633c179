"""A client for the page in this process: a request goes to its handler without a socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

from headwater.graph.http.query_pool import QueryPool
from headwater.graph.store.database import GraphDatabase
from headwater.http.request import Request
from headwater.http.response import Problem, Response
from headwater.http.routing.router import Router
from headwater.log.queue.log import Log
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.rejects import Rejects, rejects_path
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.metrics import Metrics
from headwater.page.access import PageAccess
from headwater.page.app import Page, ViewSources
from headwater.page.live import LiveStreams
from headwater.page.views.event_tail import EventTail
from headwater.page.views.rates import Rates
from headwater.page.views.system import SystemStatus
from headwater.settings import DestinationSettings, GatewaySettings, Settings

HOST = "127.0.0.1:8750"
ORIGIN = f"http://{HOST}"
ORDER = {"event_type": "Order", "amount": 12.5, "_timestamp": "2026-11-16T10:00:00Z"}


class Answer:
    """A response, with the names that tests use."""

    def __init__(self, response: Response, stream: bytes = b"") -> None:
        self.status_code = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        head = response.encode(b"", b"close", with_body=False).decode("latin-1")
        for line in head.split("\r\n")[1:]:
            name, _, value = line.partition(": ")
            self.headers.setdefault(name.lower(), value)
        self.content = response.body or stream
        self.text = self.content.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.content)


class PageClient:
    """The page over a graph, a log and rejects in a folder."""

    def __init__(self, folder: Path, lineage: Iterable[Mapping[str, Any]] = (), **gateway: Any) -> None:
        destination = DestinationSettings(id="warehouse", type="duckdb", options={"path": "w.duckdb"})
        self.settings = Settings(
            data_dir=str(folder), gateway=GatewaySettings(**gateway), destinations=(destination,)
        )
        self.events_dir = self.settings.events_dir
        graph = GraphDatabase(self.settings.graph_dir, durable=False)
        graph.ingest([json.dumps(event).encode() for event in lineage])
        graph.close()
        self._log = Log.open(folder / "log")
        self.store = RejectStore(rejects_path(self.settings), max_bytes=10**9)
        self._pool = QueryPool(self.settings.graph_dir)
        self.access = PageAccess(self.settings.gateway)
        rates = Rates(Metrics())
        rates.sample()
        status = SystemStatus(self.settings, self._log, self.store, rates)
        self.page = Page(
            self._pool,
            self.access,
            ViewSources(status, Rejects(self.settings, self.store)),
            lambda: EventTail(folder / "log", self.events_dir),
            live=LiveStreams(interval_seconds=0.01),
        )
        self.routes = Router()
        self.page.add(self.routes)

    def get(self, target: str, **headers: str) -> Answer:
        return self.request("GET", target, b"", headers)

    def post(self, target: str, form: Mapping[str, str], **headers: str) -> Answer:
        return self.request("POST", target, urlencode(form).encode(), headers)

    def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer as a server gives it: route, access, handler."""
        server = SimpleNamespace(
            pending_bytes=0,
            count_response=lambda request, status: None,
            seconds_to_slow=lambda request: 0.0,
        )
        # a stream ends after its first events: the client is gone
        connection = SimpleNamespace(
            server=server,
            flush=lambda: None,
            is_blocked=False,
            is_closed=False,
            is_abandoned=False,
            peer="127.0.0.1",
        )
        request = Request(cast(Any, connection))
        request.method, request.target, request.body = method, target.encode(), body
        request.headers = {"host": HOST} | {name.replace("_", "-"): text for name, text in headers.items()}
        route = self.routes.find(request)
        if isinstance(route, Response):
            return Answer(route)
        refusal = route.before_body(request) if route.before_body is not None else None
        if refusal is not None:
            return Answer(refusal)
        try:
            asyncio.run(_handled(cast(Any, route.handler), request, connection))
        except Problem as problem:
            return Answer(problem.response())
        assert request.response is not None
        stream = b"".join(request.stream.parts) if request.stream is not None else b""
        return Answer(request.response, stream)

    def reject_lineage(self, body: bytes = b"{}", reason: str = "It is not valid.") -> None:
        """A reject of the gateway."""
        self.store.add("gateway", [NewReject(reason, body)])

    def reject_order(self, reason: str = "It does not fit.", row: int = 1, **fields: Any) -> None:
        """A reject of the destination, as the pipeline writes it."""
        line = json.dumps(ORDER | fields).encode()
        error = EventError.of(line, reason, destination_id="warehouse", source=f"a.log:{row}", at=time.time())
        DestinationRejects(self.events_dir).append("warehouse", [error])

    def close(self) -> None:
        self._pool.close()
        self.store.close()
        self._log.close()


async def _handled(
    handler: Callable[[Request], Awaitable[None] | None], request: Request, connection: SimpleNamespace
) -> None:
    result = handler(request)
    if result is None:
        return
    task = asyncio.ensure_future(result)
    while not task.done():
        await asyncio.sleep(0.002)
        if request.stream is not None and len(request.stream.parts) >= 1:
            connection.is_closed = connection.is_abandoned = True
    await asyncio.gather(task, return_exceptions=True)
    error = task.exception()
    if error is not None and not isinstance(error, ConnectionResetError):
        raise error


@contextmanager
def page_client(
    folder: Path, lineage: Iterable[Mapping[str, Any]] = (), **gateway: Any
) -> Iterator[PageClient]:
    """A client that is closed at the end."""
    client = PageClient(folder, lineage, **gateway)
    try:
        yield client
    finally:
        client.close()
