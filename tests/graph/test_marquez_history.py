"""The endpoints that only Marquez' own web interface uses: counts over time, events, sources, tags."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from headwater.graph.marquez.history import intervals
from headwater.settings import GraphSettings
from tests.gateway.running import Running
from tests.graph.events import dataset, facet, flow, graph_of, run_event, schema
from tests.graph.test_endpoints import serving

# The requests of Marquez' web interface 0.50, from its published source, view by view.
WEB_REQUESTS = (
    "stats/lineage-events?period=DAY",
    "stats/lineage-events?period=WEEK&timezone=Europe/Berlin",
    "stats/jobs?period=DAY&timezone=UTC",
    "stats/datasets?period=WEEK&timezone=America/New_York",
    "stats/sources?period=DAY&timezone=UTC",
    "events/lineage?limit=100&before=2099-01-01T00:00:00&after=2020-01-01T00:00:00&sortDirection=desc",
    "namespaces",
    "jobs?limit=21&offset=0",
    "namespaces/db/datasets?limit=20&offset=0",
    "namespaces/db/datasets/orders",
    "namespaces/db/datasets/orders/versions?limit=100&offset=0",
    "namespaces/jobs/jobs?limit=700",
    "namespaces/jobs/jobs/load",
    "namespaces/jobs/jobs/load/runs?limit=10&offset=0",
    "lineage?nodeId=dataset:db:orders&depth=20",
    "lineage?nodeId=job:jobs:load&depth=2",
    "column-lineage?nodeId=dataset:db:orders&depth=2&withDownstream=true",
    "search/?q=orders&sort=NAME&limit=100",
    "search/?q=orders&sort=UPDATE_AT&limit=100&filter=DATASET",
    "sources",
    "tags",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("history")
    tags = facet(tags=[{"key": "pii", "value": "true", "field": "id"}, {"key": "tier", "value": "1"}])
    orders = dataset(
        "orders", schema=schema(id="int"), tags=tags, dataSource=facet(name="erp", uri="postgres://erp:5432")
    )
    now = datetime.now(UTC)
    events = [
        flow("load", ["raw"], [orders], minute=0),
        run_event("START", run=2, job="load") | {"eventTime": (now - timedelta(seconds=5)).isoformat()},
        run_event("FAIL", run=3, job="mail", inputs=["orders"])
        | {"eventTime": (now - timedelta(seconds=4)).isoformat()},
    ]
    graph_of(folder / "graph", events, GraphSettings()).close()
    with Running(folder, prepare=serving(folder / "graph")) as running:
        yield f"{running.url}/api/v1"


def get(url: str, path: str) -> Any:
    answer = httpx2.get(f"{url}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", WEB_REQUESTS)
def test_a_view_is_answered_when_the_web_interface_asks(url: str, path: str) -> None:
    assert get(url, path)


def test_runs_are_counted_in_their_hours_when_a_day_is_asked_for(url: str) -> None:
    found = get(url, "stats/lineage-events?period=DAY")
    assert len(found) == 24
    # the hour may have just begun
    assert sum(each["fail"] for each in found[-2:]) == 1
    assert sum(each["start"] for each in found[-2:]) == 1
    days = get(url, "stats/lineage-events?period=WEEK&timezone=Asia/Tokyo")
    assert len(days) == 7
    assert days[0]["endInterval"] == days[1]["startInterval"]


def test_counts_grow_when_something_is_added(url: str) -> None:
    found = get(url, "stats/jobs?period=DAY")
    assert found[-1]["count"] == 2
    assert [each["count"] for each in found] == sorted(each["count"] for each in found)
    assert get(url, "stats/datasets?period=WEEK&timezone=UTC")[-1]["count"] == 2


def test_runs_are_events_when_they_are_listed(url: str) -> None:
    found = get(url, "events/lineage?limit=2")
    assert found["totalCount"] == 3
    assert [event["eventType"] for event in found["events"]] == ["FAIL", "START"]
    assert found["events"][0]["inputs"] == [{"namespace": "db", "name": "orders", "facets": {}}]
    assert get(url, "events/lineage?before=2026-01-02T00:00:00")["totalCount"] == 1
    oldest = get(url, "events/lineage?sortDirection=asc&limit=1")["events"][0]
    assert oldest["job"]["name"] == "load"
    assert oldest["outputs"][0]["name"] == "orders"


def test_sources_and_tags_are_read_from_facets_when_there_are_some(url: str) -> None:
    assert [tag["name"] for tag in get(url, "tags")["tags"]] == ["pii", "tier"]
    orders = get(url, "namespaces/db/datasets/orders")
    assert orders["tags"] == ["tier"]
    assert orders["fields"][0]["tags"] == ["pii"]
    found = {each["name"]: each for each in get(url, "sources")["sources"]}
    assert found["erp"]["connectionUrl"] == "postgres://erp:5432"
    assert found["erp"]["type"] == "POSTGRES"
    assert "db" in found
    assert get(url, "sources/erp") == found["erp"]
    assert httpx2.get(f"{url}/sources/none").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["stats/jobs?period=YEAR", "stats/jobs?period=WEEK&timezone=Nowhere/At", "events/lineage?after=soon"],
)
def test_a_request_is_refused_when_a_value_is_none(url: str, path: str) -> None:
    assert httpx2.get(f"{url}/{path}").status_code == 400


def test_a_day_has_its_own_hours_when_clocks_change() -> None:
    spans = intervals("WEEK", "Europe/Berlin", datetime(2026, 3, 31, 12, tzinfo=UTC))
    hours = [(end.astimezone(UTC) - start.astimezone(UTC)).total_seconds() / 3600 for start, end in spans]
    assert sorted(hours) == [23, 24, 24, 24, 24, 24, 24]
