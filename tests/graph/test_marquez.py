"""An unmodified client of Marquez reads the graph: marquez-python (0.50.0 was tried)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from headwater.settings import GraphSettings
from tests.gateway.running import Running
from tests.graph.events import (
    column_lineage,
    dataset,
    facet,
    flow,
    graph_of,
    run_event,
    run_id,
    schema,
    source,
)
from tests.graph.shop import shop
from tests.graph.test_endpoints import serving

marquez = pytest.importorskip("marquez_client", reason="marquez-python is not installed")

SPACE, NAME, FIELD = "s3://bucket:9000", "a/b:c d", "x:y.z"
ODD = dataset(
    NAME,
    SPACE,
    schema=schema(**{FIELD: "int"}),
    columnLineage=column_lineage(**{FIELD: [source("orders", "price")]}),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("marquez")
    events = [
        *shop(),
        flow("odd:job/with.signs", ["orders"], [ODD], minute=4),
        run_event("START", minute=6, run=8, job="load", run_facets={"processing_engine": facet(version="4")}),
    ]
    graph_of(folder / "graph", events, GraphSettings()).close()
    with Running(folder, prepare=serving(folder / "graph")) as running:
        yield marquez.MarquezClient(running.url)


def test_namespaces_are_read_when_listed(client: Any) -> None:
    assert [each["name"] for each in client.list_namespaces()["namespaces"]] == ["db", "jobs", SPACE]
    assert client.get_namespace(SPACE)["name"] == SPACE
    assert len(client.list_namespaces(limit=1, offset=1)["namespaces"]) == 1


def test_jobs_and_runs_are_read_when_asked_for(client: Any) -> None:
    jobs = client.list_jobs("jobs")
    assert jobs["totalCount"] == 4
    assert [job["name"] for job in jobs["jobs"]] == ["load", "mail", "odd:job/with.signs", "report"]
    job = client.get_job("jobs", "odd:job/with.signs")
    assert job["inputs"] == [{"namespace": "db", "name": "orders"}]
    assert job["latestRun"]["state"] == "COMPLETED"
    assert client.get_job("jobs", "load")["latestRun"]["state"] == "RUNNING"
    runs = client.list_job_runs("jobs", "load")["runs"]
    assert [run["state"] for run in runs] == ["RUNNING", "COMPLETED"]
    assert client.list_job_runs("jobs", "load", limit=1)["totalCount"] == 2
    assert client.get_job_run(run_id(8))["facets"]["processing_engine"]["version"] == "4"


def test_datasets_and_their_versions_are_read_when_asked_for(client: Any) -> None:
    assert client.list_datasets("db")["totalCount"] == 5
    found = client.get_dataset(SPACE, NAME)
    assert found["id"] == {"namespace": SPACE, "name": NAME}
    assert [field["name"] for field in found["fields"]] == [FIELD]
    versions = client.list_dataset_versions("db", "orders")["versions"]
    assert [field["name"] for field in versions[0]["fields"]] == ["id", "price", "email"]
    assert (
        client.get_dataset_version("db", "orders", versions[0]["version"])["version"]
        == versions[0]["version"]
    )


def test_column_lineage_is_read_when_names_are_full_of_colons(client: Any) -> None:
    graph = client.get_column_lineage_by_dataset_field(SPACE, NAME, FIELD)["graph"]
    nodes = {node["id"]: node for node in graph}
    start = nodes[f"datasetField:{SPACE}:{NAME}:{FIELD}"]
    assert start["data"]["inputFields"][0]["field"] == "price"
    assert start["inEdges"] == [{"origin": "datasetField:db:orders:price", "destination": start["id"]}]
    assert "datasetField:db:events:amount" in nodes
    by_dataset = client.get_column_lineage_by_dataset("db", "orders", with_downstream=True)["graph"]
    assert f"datasetField:{SPACE}:{NAME}:{FIELD}" in {node["id"] for node in by_dataset}
    by_job = client.get_column_lineage_by_job("jobs", "load")["graph"]
    assert {node["data"]["field"] for node in by_job} == {"id", "price", "email", "amount", "mail"}


def test_an_error_is_raised_when_something_is_not_known(client: Any) -> None:
    with pytest.raises(marquez.errors.APIError):
        client.get_dataset("db", "nothing")
    with pytest.raises(marquez.errors.APIError):
        client.get_job_run(run_id(4711))
    assert client.list_tags() == {"tags": []}
    assert [each["name"] for each in client.list_sources()["sources"]] == ["db", SPACE]


def test_lineage_has_nodes_with_edges_when_requested(client: Any) -> None:
    base = client._api_base
    params: dict[str, str | int] = {"nodeId": "dataset:db:orders", "depth": 2}
    nodes = {node["id"]: node for node in httpx2.get(f"{base}/lineage", params=params).json()["graph"]}
    assert {edge["origin"] for edge in nodes["dataset:db:orders"]["inEdges"]} == {"job:jobs:load"}
    assert {edge["destination"] for edge in nodes["job:jobs:report"]["outEdges"]} == {"dataset:db:daily"}
    assert nodes["job:jobs:load"]["data"]["id"] == {"namespace": "jobs", "name": "load"}
    job = httpx2.get(f"{base}/lineage", params={"nodeId": "job:jobs:odd:job/with.signs"}).json()["graph"]
    assert f"dataset:{SPACE}:{NAME}" in {node["id"] for node in job}
    hits = httpx2.get(f"{base}/search", params={"q": "orders", "filter": "DATASET"}).json()
    assert hits["results"][0]["nodeId"] == "dataset:db:orders"
    assert httpx2.get(f"{base}/lineage", params={"nodeId": "dataset:x:y"}).status_code == 404
    assert httpx2.get(f"{base}/search", params={"q": "x", "filter": "RUN"}).status_code == 400
    assert httpx2.get(f"{base}/namespaces/db/nothing").status_code == 404
    assert len(httpx2.get(f"{base}/jobs").json()["jobs"]) == 4
    facets = httpx2.get(f"{base}/jobs/runs/{run_id(8)}/facets").json()["facets"]
    assert set(facets) == {"processing_engine"}


def test_the_total_of_a_search_counts_all_matches_when_the_page_is_short(client: Any) -> None:
    def total(**params: str | int) -> tuple[int, int]:
        found = httpx2.get(f"{client._api_base}/search", params=params).json()
        return found["totalCount"], len(found["results"])

    assert total(q="ers", filter="DATASET", limit=1)[1] == 1
    assert total(q="ers", filter="DATASET", limit=1)[0] == total(q="ers", filter="DATASET", limit=100)[1] > 1
    assert total(q="o", limit=1)[0] == total(q="o", limit=100)[1] > 1
    assert total(q="", filter="JOB", limit=1) == (4, 1)
    assert total(q="nothing has this name") == (0, 0)
