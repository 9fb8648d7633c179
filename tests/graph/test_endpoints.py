"""The endpoints of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from headwater.gateway.gateway import Gateway
from headwater.graph.http import endpoints
from headwater.graph.http.endpoints import add_routes
from headwater.graph.http.query_pool import QueryPool
from headwater.graph.marquez import endpoints as marquez_endpoints
from headwater.http.auth import AdminToken
from headwater.http.routing.endpoint import ANY_ENDPOINT
from headwater.settings import GatewaySettings
from tests.gateway.running import Running, statuses
from tests.gateway.running import get as raw_get
from tests.graph.events import dataset, facet, graph_of, run_event, run_id
from tests.graph.shop import shop

DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"
HOSTILE = dataset("<script>&\"'</script>", "ns:with/slashes", documentation=facet(description="</script>"))


def serving(folder: Path, **settings: Any) -> Callable[[Gateway], None]:
    def prepare(gateway: Gateway) -> None:
        pool = QueryPool(folder)
        add_routes(gateway.router, pool, AdminToken(GatewaySettings(**settings)))

    return prepare


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("graph")
    events = [*shop(), run_event("FAIL", minute=5, run=7, job="load", inputs=[HOSTILE])]
    graph_of(folder / "graph", events).close()
    with Running(folder, prepare=serving(folder / "graph")) as running:
        yield running


ASKED = {
    "summary": "",
    "search": "q=orders",
    "namespaces": "",
    "catalogue": "kind=job&sort=updated",
    "dataset": "namespace=db&name=orders",
    "job": "namespace=jobs&name=load",
    "run": f"id={run_id(7)}",
    "runs": "namespace=jobs&job=load",
    "statistics": "namespace=db&name=orders",
    "neighbourhood": "namespace=db&name=orders&columns=true&depth=3",
    "column": "namespace=db&name=daily&column=total&direction=up",
    "impact": "namespace=db&name=events&column=amount",
}


@pytest.mark.parametrize("name", ASKED)
def test_the_answer_is_as_described_when_a_route_is_asked(running: Running, name: str) -> None:
    answer = running.get(f"/api/v1/graph/{name}?{ASKED[name]}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    description = running.get("/openapi.json").json()
    reported = description["paths"][f"/api/v1/graph/{name}"]["get"]["responses"]["200"]
    schema = description | reported["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator(schema).validate(answer.json())


def test_names_are_only_data_when_they_are_hostile(running: Running) -> None:
    with running.client() as client:
        name = {"namespace": HOSTILE["namespace"], "name": HOSTILE["name"]}
        found = client.get("/api/v1/graph/dataset", params=name)
    assert found.headers["content-type"] == "application/json"
    assert (found.json()["namespace"], found.json()["name"]) == (HOSTILE["namespace"], HOSTILE["name"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("dataset", 400),
        ("dataset?namespace=db", 400),
        ("dataset?namespace=db&name=nothing", 404),
        ("job?namespace=jobs&name=nothing", 404),
        ("run?id=nothing", 404),
        ("column?namespace=db&name=orders&column=nothing", 404),
        ("neighbourhood?namespace=db&name=orders&depth=-1", 400),
        ("neighbourhood?namespace=db&name=orders&depth=1e9", 400),
        ("neighbourhood?namespace=db&name=orders&depth=101", 400),
        ("neighbourhood?namespace=db&name=orders&direction=sideways", 400),
        ("neighbourhood?namespace=db&name=orders&columns=maybe", 400),
        ("search?q=x&kind=planet", 400),
        ("search?q=x&limit=٣", 400),
        ("search?" + "&".join(f"p{i}=" for i in range(99)), 400),
        ("nothing", 404),
    ],
)
def test_it_is_refused_with_a_reason_when_a_request_is_wrong(
    running: Running, path: str, status: int
) -> None:
    answer = running.get(f"/api/v1/graph/{path}")
    assert answer.status_code == status
    assert answer.json()["hint"]


def test_events_are_still_taken_when_the_graph_is_served(running: Running) -> None:
    from tests.gateway.running import run_bytes

    assert running.post(run_bytes()).status_code == 200
    assert running.get("/api/v1/lineage?nodeId=dataset:db:orders").status_code == 200


def test_no_graph_is_served_when_it_is_not_enabled(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        assert running.get("/api/v1/graph/search?q=x").status_code == 404
        assert running.get("/api/v1/namespaces/x").status_code == 404
        assert running.get("/api/v1/lineage").status_code == 405


PATHS = [
    *(f"/api/v1/graph/{name}?{query}" for name, query in ASKED.items()),
    *(
        "/api/v1/namespaces",
        "/api/v1/namespaces/db/datasets",
        "/api/v1/jobs",
        f"/api/v1/jobs/runs/{run_id(7)}",
    ),
    *("/api/v1/lineage?nodeId=dataset:db:orders", "/api/v1/search?q=orders"),
]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("locked")
    graph_of(folder / "graph", [*shop(), run_event(run=7)]).close()
    settings: dict[str, Any] = {"admin_token": "secret", "api_keys": ("producer",)}
    with Running(folder, prepare=serving(folder / "graph", **settings), **settings) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
def test_the_admin_token_is_needed_on_each_route_when_there_is_one(locked: Running, path: str) -> None:
    assert locked.get(path).status_code == 401
    assert locked.get(path, {"authorization": "Bearer producer"}).status_code == 401
    assert locked.get(path, {"authorization": "Bearer secret"}).status_code == 200


def test_only_this_machine_is_served_when_there_is_no_token(tmp_path: Path) -> None:
    graph_of(tmp_path / "graph", shop()).close()
    path = "/api/v1/graph/search?q=orders"
    with Running(tmp_path, prepare=serving(tmp_path / "graph")) as running:
        assert running.get(path).status_code == 200
        assert running.get(path, {"host": "localhost:8750"}).status_code == 200
        assert running.get(path, {"host": "evil.example"}).status_code == 403
        for proxied in ({"x-forwarded-for": "127.0.0.1"}, {"via": "1.1 proxy"}, {"x-real-ip": "192.0.2.7"}):
            assert running.get(path, proxied).status_code == 403
        assert running.get(path, {"host": "127.0.0.1.evil.example:80"}).status_code == 403
        assert statuses(running.talk(raw_get(path, "Host: evil.example", "Connection: close")))[0] in (
            400,
            403,
        )
    with Running(tmp_path / "open", prepare=serving(tmp_path / "graph", host="0.0.0.0")) as running:
        assert running.get(path).status_code == 403


def test_every_route_and_status_is_documented_when_the_graph_is_described() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    written = {section.partition("\n")[0].strip("`"): section for section in sections}
    common = {int(status) for status in re.findall(r"^\| (\d{3}) ", written["The graph"], re.M)}
    for endpoint, _ in endpoints.ENDPOINTS:
        assert f"`GET {endpoint.path}`" in written["The graph"], endpoint.path
        assert endpoint.statuses - set(ANY_ENDPOINT) <= common
    for endpoint, _ in marquez_endpoints.ENDPOINTS:
        assert f"`GET {endpoint.path}`" in written["The graph for Marquez' clients"], endpoint.path
