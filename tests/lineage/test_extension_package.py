"""An installed extension: found by its entry point, each create method called once, its builders used."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater.lineage
from headwater.testing.lineage import CollectingTransport, Events
from tests.lineage.conftest import validate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = '''
"""Lineage of the ledger, for people who keep one."""

from headwater.extend.lineage import (
    AbstractInputDatasetBuilder,
    AbstractInputDatasetFacetBuilder,
    AbstractJobFacetBuilder,
    AbstractOutputDatasetFacetBuilder,
    AbstractRunFacetBuilder,
    InputDatasetBuilder,
    OpenLineageEventListenerFactory,
)
from headwater.extend.lineage import ActiveJob, HadoopRDD, QueryExecution, RDD, StageInfo

CALLS = []


class Ledgers(AbstractInputDatasetBuilder[HadoopRDD]):
    def apply(self, event):
        name = event.jvm.name() if event.jvm is not None else "gone"
        facets = {"ledger": {"rdd": event.id, "name": name}}
        return [InputDatasetBuilder("ledger://main", path.rpartition("/")[2], facets) for path in event.paths]


class Sizes(AbstractInputDatasetFacetBuilder[StageInfo]):
    def accept(self, event, consumer):
        consumer("ledgerStage", {"tasks": event.tasks})


class Written(AbstractOutputDatasetFacetBuilder[ActiveJob]):
    def accept(self, event, consumer):
        consumer("ledgerJob", {"job": event.id})


class Queries(AbstractRunFacetBuilder[QueryExecution]):
    def accept(self, event, consumer):
        consumer("ledgerQuery", {"root": event.plan.top.simple, "hasJvm": event.jvm is not None})


class Chains(AbstractJobFacetBuilder[RDD]):
    def __init__(self, context):
        self.context = context

    def accept(self, event, consumer):
        consumer("ledgerChain", {"last": event.cls, "builders": len(self.context.job_facet_builders)})


class Factory(OpenLineageEventListenerFactory):
    def set_open_lineage_context(self, context):
        CALLS.append("set_open_lineage_context")
        assert context.spark_context is not None
        self.context = context

    def create_input_dataset_query_plan_visitors(self):
        CALLS.append("create_input_dataset_query_plan_visitors")
        return []

    def create_output_dataset_query_plan_visitors(self):
        CALLS.append("create_output_dataset_query_plan_visitors")
        return []

    def create_input_dataset_builder(self):
        CALLS.append("create_input_dataset_builder")
        return [Ledgers()]

    def create_output_dataset_builder(self):
        CALLS.append("create_output_dataset_builder")
        return []

    def create_input_dataset_facet_builders(self):
        CALLS.append("create_input_dataset_facet_builders")
        return [Sizes()]

    def create_output_dataset_facet_builders(self):
        CALLS.append("create_output_dataset_facet_builders")
        return [Written()]

    def create_dataset_facet_builders(self):
        CALLS.append("create_dataset_facet_builders")
        return []

    def create_run_facet_builders(self):
        CALLS.append("create_run_facet_builders")
        return [Queries()]

    def create_job_facet_builders(self):
        CALLS.append("create_job_facet_builders")
        return [Chains(self.context)]
'''

CREATES = [
    "create_input_dataset_query_plan_visitors",
    "create_output_dataset_query_plan_visitors",
    "create_input_dataset_builder",
    "create_output_dataset_builder",
    "create_input_dataset_facet_builders",
    "create_output_dataset_facet_builders",
    "create_dataset_facet_builders",
    "create_run_facet_builders",
    "create_job_facet_builders",
]


def wheel(folder: Path) -> Path:
    """The extension as a wheel, written without a build backend."""
    path = folder / "ledger_lineage-1.0-py3-none-any.whl"
    info = "ledger_lineage-1.0.dist-info"
    files = {
        "ledger_lineage.py": MODULE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ledger-lineage\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[headwater.lineage]\nledger = ledger_lineage:Factory\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """The calls of the factory, and the events of a job that ran with the extension."""
    folder = tmp_path_factory.mktemp("ledger")
    site = str(folder / "site")
    with zipfile.ZipFile(wheel(folder)) as archive:  # a wheel of pure Python is installed by unpacking it
        archive.extractall(site)
    (folder / "book.txt").write_text("a\nb\nc\n")
    transport = CollectingTransport()
    headwater.lineage.uninstall()
    sys.path.insert(0, site)
    try:
        events = Events(transport)
        headwater.lineage.install(spark, transport=transport, deadline_millis=120_000)
        spark.sparkContext.textFile(f"{folder}/book.txt", 1).saveAsTextFile(f"{folder}/copy")
        spark.read.text(f"{folder}/copy").write.text(f"{folder}/again")
        yield sys.modules["ledger_lineage"].CALLS, events.all
    finally:
        headwater.lineage.uninstall()
        sys.path.remove(site)
        sys.modules.pop("ledger_lineage", None)


def only(events: list[dict[str, Any]], state: str, output: str) -> dict[str, Any]:
    (found,) = [
        event
        for event in events
        if event["eventType"] == state
        and any(each["name"].endswith(output) for each in event.get("outputs", []))
    ]
    return found


def test_each_create_method_is_called_once_and_after_the_context_when_a_package_brings_a_factory(
    ran: tuple[list[str], list[dict[str, Any]]],
) -> None:
    calls, _ = ran
    assert calls[0] == "set_open_lineage_context"
    assert sorted(calls[1:]) == sorted(CREATES)


def test_datasets_and_facets_of_the_package_are_in_the_events_when_an_rdd_job_runs(
    ran: tuple[list[str], list[dict[str, Any]]],
) -> None:
    _, events = ran
    event = only(events, "COMPLETE", "/copy")
    inputs = {each["namespace"]: each for each in event["inputs"]}
    assert inputs["ledger://main"]["name"] == "book.txt"
    assert inputs["ledger://main"]["facets"]["ledger"]["rdd"] >= 0
    assert "ledger" not in inputs["file"]["facets"]
    assert {each["inputFacets"]["ledgerStage"]["tasks"] for each in event["inputs"]} == {1}
    assert event["outputs"][0]["outputFacets"]["ledgerJob"]["job"] >= 0
    chain = event["job"]["facets"]["ledgerChain"]
    assert chain["last"].endswith("HadoopRDD"), "the last of the flattened chain is the file"
    assert chain["builders"] > 1


def test_objects_of_the_jvm_are_available_when_a_query_starts(
    ran: tuple[list[str], list[dict[str, Any]]],
) -> None:
    _, events = ran
    event = only(events, "START", "/again")
    facet = event["run"]["facets"]["ledgerQuery"]
    assert facet["root"] == "InsertIntoHadoopFsRelationCommand"
    assert facet["hasJvm"] is True


def test_events_are_valid_when_a_package_adds_to_them(ran: tuple[list[str], list[dict[str, Any]]]) -> None:
    _, events = ran
    assert len(events) >= 5
    validate(events)
