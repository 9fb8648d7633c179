"""A Marquez server returns by its API what lineage has sent.

These tests skip with the reason where its published server cannot be downloaded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client.transport.http import HttpConfig, HttpTransport

import headwater.lineage
from headwater.testing.lineage import CollectingTransport
from tests.parts.cache import Missing
from tests.parts.marquez import Marquez
from tests.support.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

Event = dict[str, Any]

STATES = {"START": "RUNNING", "COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
WAIT_SECONDS = 120


class Sent(CollectingTransport):
    """openlineage-python's http transport, and what went through it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._http = HttpTransport(HttpConfig(url=url))

    def emit(self, event: Any) -> None:
        self._http.emit(event)  # raises what the server refuses; such an event is not in the list
        super().emit(event)


@pytest.fixture(scope="module")
def marquez(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marquez]:
    try:
        server = Marquez(tmp_path_factory.mktemp("marquez"))
    except Missing as missing:
        pytest.skip(f"not published: {missing}")
    with server:
        yield server


def shop(spark: SparkSession, folder: Path) -> None:
    """Three writes, the last of which fails in a task."""
    orders, customers = folder / "orders", folder / "customers"
    spark.range(20).selectExpr("id AS order_id", "id % 4 AS customer_id", "id * 10 AS cents").write.parquet(
        str(orders)
    )
    spark.range(4).selectExpr("id AS customer_id", "concat('c', id) AS name").write.parquet(str(customers))
    joined = spark.read.parquet(str(orders)).join(spark.read.parquet(str(customers)), "customer_id")
    joined.groupBy("name").sum("cents").withColumnRenamed("sum(cents)", "cents").write.parquet(
        str(folder / "totals")
    )
    with pytest.raises(Exception, match="too dear"):
        spark.read.parquet(str(orders)).selectExpr("raise_error('too dear') AS never").write.parquet(
            str(folder / "never")
        )


@pytest.fixture(scope="module")
def sent_shop(
    spark: SparkSession, marquez: Marquez, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Event], Path]:
    """The events of the shop, as Marquez took them, one by one."""
    folder = tmp_path_factory.mktemp("shop")
    transport = Sent(marquez.url)
    headwater.lineage.uninstall()
    headwater.lineage.install(spark, namespace="shop", transport=transport)
    shop(spark, folder)
    assert headwater.lineage.flush(WAIT_SECONDS)
    headwater.lineage.uninstall()
    return transport.events, folder


def ends(events: list[Event]) -> dict[str, Event]:
    """The last event of each run."""
    return {event["run"]["runId"]: event for event in events}


def runs_of(marquez: Marquez, events: list[Event]) -> dict[str, Any]:
    return {run: marquez.run(run) for run in ends(events)}


def test_runs_have_the_states_that_were_sent_when_read_back(
    marquez: Marquez, sent_shop: tuple[list[Event], Path]
) -> None:
    events, _ = sent_shop
    found = runs_of(marquez, events)
    assert {run: about["state"] for run, about in found.items()} == {
        run: STATES[event["eventType"]] for run, event in ends(events).items()
    }
    states = sorted(about["state"] for about in found.values())
    assert states.count("FAILED") == 1
    assert states.count("COMPLETED") >= 4  # three writes and the application
    (failed,) = [about for about in found.values() if about["state"] == "FAILED"]
    assert "too dear" in failed["facets"]["errorMessage"]["message"]


def test_jobs_have_the_inputs_and_outputs_that_were_sent_when_read_back(
    marquez: Marquez, sent_shop: tuple[list[Event], Path]
) -> None:
    events, _ = sent_shop
    compared = 0
    for run, event in ends(events).items():
        if event["eventType"] != "COMPLETE":
            continue  # Marquez makes a version of a job, with inputs and outputs, when a run of it is done
        about = marquez.run(run)
        versions = marquez.get(
            f"namespaces/{about['jobVersion']['namespace']}/jobs/{about['jobVersion']['name']}"
            f"/versions/{about['jobVersion']['version']}"
        )
        for side in ("inputs", "outputs"):
            assert names(versions[side]) == names(event.get(side, [])), event["job"]["name"]
        compared += 1
    assert compared >= 4


def names(datasets: list[Any]) -> set[tuple[str, str]]:
    return {(dataset["namespace"], dataset["name"]) for dataset in datasets}


def test_jobs_and_runs_name_their_parent_when_read_back(
    marquez: Marquez, sent_shop: tuple[list[Event], Path]
) -> None:
    events, _ = sent_shop
    (application,) = {event["run"]["runId"] for event in events if "parent" not in event["run"]["facets"]}
    children = {run: event for run, event in ends(events).items() if run != application}
    assert len(children) == 4
    for run, event in children.items():
        parent = event["run"]["facets"]["parent"]
        assert marquez.run(run)["facets"]["parent"]["run"]["runId"] == parent["run"]["runId"] == application
        assert marquez.job("shop", event["job"]["name"])["parentJobName"] == parent["job"]["name"]


def test_datasets_have_the_columns_that_were_sent_when_read_back(
    marquez: Marquez, sent_shop: tuple[list[Event], Path]
) -> None:
    events, _ = sent_shop
    sent: dict[tuple[str, str], list[str]] = {}
    for event in events:
        # what a failed run would have written never came to be: Marquez knows its name, and no columns
        written = event.get("outputs", []) if event["eventType"] == "COMPLETE" else []
        for dataset in [*event.get("inputs", []), *written]:
            if fields := dataset.get("facets", {}).get("schema", {}).get("fields"):
                sent[dataset["namespace"], dataset["name"]] = sorted(field["name"] for field in fields)
    assert {name.rpartition("/")[2] for _, name in sent} >= {"orders", "customers", "totals"}
    assert {
        place: sorted(field["name"] for field in marquez.dataset(*place)["fields"]) for place in sent
    } == sent


def test_column_lineage_is_that_which_was_sent_when_read_back(
    marquez: Marquez, sent_shop: tuple[list[Event], Path]
) -> None:
    events, folder = sent_shop
    totals = str(folder / "totals")
    (event,) = [
        event
        for event in ends(events).values()
        if any(dataset["name"] == totals for dataset in event.get("outputs", []))
    ]
    (output,) = event["outputs"]
    sent = {
        field: {(each["namespace"], each["name"], each["field"]) for each in entry["inputFields"]}
        for field, entry in output["facets"]["columnLineage"]["fields"].items()
    }
    assert sent["cents"] >= {("file", str(folder / "orders"), "cents")}
    assert sent["name"] >= {("file", str(folder / "customers"), "name")}
    found: dict[str, set[tuple[str, str, str]]] = {}
    for column in marquez.dataset("file", totals)["columnLineage"]:
        found[column["name"]] = {
            (each["namespace"], each["dataset"], each["field"]) for each in column["inputFields"]
        }
    assert found == sent


def test_a_job_is_known_when_its_events_went_through_the_sidecar(
    spark: SparkSession, marquez: Marquez, tmp_path: Path
) -> None:
    (tmp_path / "sidecar").mkdir()
    outlet = {"name": "marquez", "type": "openlineage", "url": marquez.url}
    server = Server(tmp_path / "sidecar", {"outlets": [outlet]})
    try:
        transport = Sent(server.url)
        headwater.lineage.uninstall()
        headwater.lineage.install(spark, namespace="through-sidecar", transport=transport)
        shop(spark, tmp_path)
        assert headwater.lineage.flush(WAIT_SECONDS)
        headwater.lineage.uninstall()
        expected = {run: STATES[event["eventType"]] for run, event in ends(transport.events).items()}
        assert sorted(expected.values()).count("FAILED") == 1
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := states(marquez, expected)) != expected and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == expected
        jobs = marquez.get("namespaces/through-sidecar/jobs", limit=100)["jobs"]
        assert len(jobs) == len({event["job"]["name"] for event in transport.events})
    finally:
        server.stop()


def states(marquez: Marquez, runs: dict[str, str]) -> dict[str, str]:
    return {run: about["state"] for run in runs if (about := marquez.run(run)) is not None}
