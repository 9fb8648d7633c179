"""All routes of `headwater serve --graph` at once: behind a proxy, and beside the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvloop

from headwater.cli.serve import Server
from headwater.http.routing.router import Router
from headwater.settings import GatewaySettings, GraphSettings, Settings, TokenSettings
from tests.gateway.running import wait_until
from tests.graph.events import run_id
from tests.graph.shop import shop

# The only routes that answer without an admin token: for producers, supervisors, and the sign-in form.
PUBLIC = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/login"),
    ("POST", "/api/v1/lineage"),
    ("POST", "/api/v1/lineage/batch"),
}
FORWARDED = (
    {"x-forwarded-for": "203.0.113.9"},
    {"x-forwarded-for": "127.0.0.1"},
    {"forwarded": "for=203.0.113.9"},
    {"x-real-ip": "203.0.113.9"},
    {"x-forwarded-host": "headwater.example"},
    {"via": "1.1 proxy"},
)
NAMED = "namespace=db&name=orders"
QUERIES = {
    "/lineage": f"{NAMED}&column=price&depth=5",
    "/lineage.svg": NAMED,
    "/lineage/trace.csv": f"{NAMED}&column=price",
    "/impact": NAMED,
    "/dataset/changes": NAMED,
    "/impact.csv": f"{NAMED}&column=price",
    "/dataset": NAMED,
    "/job": "namespace=jobs&name=load",
    "/search.json": "q=orders",
    "/reject": "id=1",
    "/api/v1/graph/dataset": NAMED,
    "/api/v1/graph/neighbourhood": f"{NAMED}&columns=true",
    "/api/v1/graph/column": f"{NAMED}&column=price",
    "/api/v1/graph/impact": NAMED,
    "/api/v1/graph/job": "namespace=jobs&name=load",
    "/api/v1/graph/statistics": NAMED,
    "/api/v1/lineage": "nodeId=dataset:db:orders",
    "/api/v1/column-lineage": "nodeId=dataset:db:orders",
    "/api/v1/search": "q=orders",
}


class Served:
    """The server of `headwater serve --graph`, in this process; its loop has a thread of its own."""

    def __init__(self, folder: Path, *, server_secret: str = "server", **gateway: Any) -> None:
        settings = Settings(
            data_dir=str(folder),
            gateway=GatewaySettings(port=0, **gateway),
            graph=GraphSettings(enabled=True),
            tokens=(TokenSettings(id="web", client_secret="client", server_secret=server_secret),),
        )
        self.server = Server(settings, with_graph=True)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.call(self.server.start())
        assert self.server._gateway is not None
        self.router: Router = self.server._gateway.router
        self.url = f"http://127.0.0.1:{self.server._gateway.port}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def routes(self) -> set[tuple[str, str]]:
        """The method and path of every route; a path with parameters has some that exist."""
        router = self.router
        found = {(method, path) for path, methods in router._paths.items() for method in methods}
        for path, (_, methods) in router._templates.items():
            for name, value in (
                ("namespace", "db"),
                ("dataset", "orders"),
                ("job", "load"),
                ("id", run_id(1)),
            ):
                path = path.replace("{" + name + "}", value)
            found |= {(method, path.replace("{version}", run_id(1))) for method in methods}
        return found

    def close(self) -> None:
        self.call(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    try:
        answer = httpx2.post(f"{served.url}/api/v1/lineage/batch", json=shop())
        assert answer.json()["status"] == "success"
        wait_until(lambda: "letters" in httpx2.get(f"{served.url}/search?q=letters").text)
        yield served
    finally:
        served.close()


def statuses(served: Served, headers: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """The answer to each route. Many are asked for at once, since answers to missing keys are slowed."""
    with (
        httpx2.Client(base_url=served.url, headers=dict(headers), timeout=60) as client,
        ThreadPoolExecutor(16) as threads,
    ):

        def status(route: tuple[str, str]) -> int:
            method, path = route
            target = f"{path}?{QUERIES[path]}" if path in QUERIES else path
            with client.stream(method, target, content=b"") as answer:
                return answer.status_code

        routes = sorted(served.routes())
        return dict(zip(routes, threads.map(status, routes), strict=True))


def is_public(method: str, path: str) -> bool:
    return (method, path) in PUBLIC or path.startswith("/static/") or method == "OPTIONS"


@pytest.mark.parametrize("headers", FORWARDED, ids=lambda headers: next(iter(headers)))
def test_every_route_but_the_public_ones_is_refused_when_a_proxy_forwarded_the_request(
    served: Served, headers: dict[str, str]
) -> None:
    own = {"origin": served.url, "sec-fetch-site": "same-origin"}
    found = statuses(served, headers | own)
    assert len(found) > 50
    refused = {route: status for route, status in found.items() if not is_public(*route)}
    assert {route: status for route, status in refused.items() if status not in (401, 403)} == {}


def test_every_route_but_the_public_ones_is_refused_when_a_token_is_set(tmp_path: Path) -> None:
    served = Served(tmp_path, admin_token="secret", trusted_proxies=("127.0.0.1",))
    try:
        for headers in ({}, {"x-forwarded-for": "127.0.0.1"}):
            found = statuses(served, headers | {"origin": served.url})
            refused = {route: status for route, status in found.items() if not is_public(*route)}
            answers = {route: status for route, status in refused.items() if status not in (401, 403)}
            # a page leads to the sign-in form
            assert {route for route, status in answers.items() if status != 303} == set()
    finally:
        served.close()


@pytest.mark.parametrize("path", ["/live", "/live/tail"])
def test_no_connection_stays_open_when_its_viewer_has_left(served: Served, path: str) -> None:
    assert served.server._gateway is not None
    admission = served.server._gateway._server.admission
    with httpx2.Client(base_url=served.url, timeout=60) as client, client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert len(admission) > 0
    wait_until(lambda: len(admission) == 0)


def test_the_page_is_shown_when_no_proxy_forwarded_the_request(served: Served) -> None:
    found = statuses(served, {})
    shown = {path for (method, path), status in found.items() if method == "GET" and status == 200}
    assert {"/", "/runs", "/rejects", "/tail", "/live", *QUERIES} - shown <= {"/reject"}


@contextmanager
def watched(served: Served) -> Iterator[list[str]]:
    """The calls of SQLite and of file systems in the loop's thread."""
    calls: list[str] = []
    slow = {os.listdir, os.scandir, os.stat, os.fsync, os.open, open}

    def profile(frame: types.FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(function, "__self__", None)
        if type(owner).__module__.startswith("apsw") or function in slow:
            calls.append(f"{getattr(function, '__qualname__', function)} in {frame.f_code.co_qualname}")

    async def watch(profile: Any) -> None:
        sys.setprofile(profile)

    served.call(watch(profile))
    try:
        yield calls
    finally:
        served.call(watch(None))


def test_no_query_runs_and_no_folder_is_read_in_the_loop_when_every_view_is_shown(served: Served) -> None:
    statuses(served, {})  # what is made once, at the first request
    with watched(served) as calls:
        found = statuses(served, {})
    assert found["GET", "/"] == 200
    assert not calls, "\n".join(calls)


def test_the_watch_sees_a_query_when_one_runs_in_the_loop(served: Served, tmp_path: Path) -> None:
    import apsw

    async def query() -> None:
        connection = apsw.Connection(":memory:")
        connection.execute("SELECT 1")
        os.listdir(tmp_path)
        connection.close()

    with watched(served) as calls:
        served.call(query())
    assert any("execute" in call for call in calls)
    assert any("listdir" in call for call in calls)
