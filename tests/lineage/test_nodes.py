"""Nodes with lineage methods: JVM extensions, Python sources, handlers; facets of the next event."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lineage.extend.facet_registry import FacetRegistry
from headwater.lineage.extend.lineage_nodes import (
    InputDatasetWithIdentifier,
    OutputDatasetWithIdentifier,
    PlanNode,
    find_handler,
    register_node,
    unregister_node,
)
from headwater.testing.lineage import Events, collect_lineage
from tests.lineage.java_nodes import HOMES, Extension, merged_rows
from tests.lineage.published_nodes import Published
from tests.parts.cache import Missing
from tests.parts.lineage_interfaces import find_interfaces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNKNOWN = [("ledger_rows", "a", "UNKNOWN"), ("ledger_rows", "b", "UNKNOWN")]
PAGE = Path(__file__).parents[2] / "docs" / "extending-lineage.md"


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    spark.sql("create table ledger_rows (a int, b string) using parquet")
    yield "ledger_rows"
    spark.sql("drop table ledger_rows")


def examples() -> list[str]:
    """The Python of the page, block by block."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def edges(event: dict[str, Any], output: str) -> dict[str, list[tuple[str, str, str]]]:
    """Dataset, field and subtypes of each field's inputs."""
    found = next(each for each in event["outputs"] if each["name"].endswith(output))
    return {
        field: [
            (
                one["name"].rpartition("/")[2],
                one["field"],
                "+".join(t["subtype"] for t in one["transformations"]),
            )
            for one in entry["inputFields"]
        ]
        for field, entry in found["facets"]["columnLineage"]["fields"].items()
    }


def test_a_python_source_names_its_dataset_and_version_when_it_has_get_inputs(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    exec(compile(examples()[2], "example 1", "exec"), {"spark": spark, "folder": str(tmp_path / "entries")})
    event = events.only("COMPLETE", output="entries")
    assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [("ledger://books", "2026")]
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "42"
    assert edges(event, "entries") == {
        "entry": [("2026", "entry", "IDENTITY")],
        "text": [("2026", "text", "TRANSFORMATION")],
    }


def test_a_python_source_reports_the_side_that_is_used_when_it_has_both_methods(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        SimpleDataSourceStreamReader,
        WriterCommitMessage,
    )

    class Both(DataSource):
        @classmethod
        def name(cls) -> str:
            return "both"

        def schema(self) -> str:
            return "a int"

        def get_inputs(self, context: object) -> list[InputDatasetWithIdentifier]:
            return [InputDatasetWithIdentifier("both://host", f"{self.options['At']}/read")]

        def get_outputs(self, context: object) -> list[OutputDatasetWithIdentifier]:
            return [OutputDatasetWithIdentifier("both://host", f"{self.options['At']}/written")]

        def reader(self, schema: object) -> DataSourceReader:
            class Reader(DataSourceReader):
                def read(self, partition: object) -> Any:
                    yield (1,)

            return Reader()

        def writer(self, schema: object, overwrite: bool) -> DataSourceWriter:
            class Writer(DataSourceWriter):
                def write(self, iterator: object) -> WriterCommitMessage:
                    return WriterCommitMessage()

            return Writer()

        def simpleStreamReader(self, schema: object) -> SimpleDataSourceStreamReader:  # noqa: N802
            class Reader(SimpleDataSourceStreamReader):
                def initialOffset(self) -> dict[str, int]:  # noqa: N802
                    return {"at": 0}

                def read(self, start: dict[str, int]) -> Any:
                    return (iter([(1,)] if start["at"] == 0 else []), {"at": 1})

                def readBetweenOffsets(self, start: object, end: object) -> Any:  # noqa: N802
                    return iter([(1,)])

            return Reader()

        def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            class Writer(DataSourceStreamWriter):
                def write(self, iterator: object) -> WriterCommitMessage:
                    return WriterCommitMessage()

            return Writer()

    def names(found: list[dict[str, Any]]) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
        return {
            (
                tuple(each["name"] for each in event["inputs"]),
                tuple(each["name"] for each in event["outputs"]),
            )
            for event in found
        }

    spark.dataSource.register(Both)
    spark.read.format("both").option("at", "a").load().write.parquet(str(tmp_path / "out"))
    assert names(events.select("COMPLETE")) == {(("a/read",), (str(tmp_path / "out"),))}
    before = len(events.all)
    spark.range(3).selectExpr("int(id) a").write.format("both").option("at", "b").mode("append").save()
    assert names(events.all[before:]) == {((), ("b/written",))}
    before = len(events.all)
    stream = (
        spark.readStream.format("both")
        .option("at", "c")
        .load()
        .writeStream.format("both")
        .option("at", "d")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    batches = [each for each in events.all[before:] if each["inputs"] or each["outputs"]]
    assert names(batches) == {(("c/read",), ("d/written",))}


def test_a_handler_describes_the_columns_when_the_node_is_of_another_extension(
    spark: SparkSession, events: Events, table: str, tmp_path: Path
) -> None:
    exec(compile(examples()[3], "example 2", "exec"), {})
    try:
        frame = merged_rows(spark, spark.table(table))
        frame.write().mode("overwrite").parquet(str(tmp_path / "merged"))
        event = events.only("COMPLETE", output="merged")
    finally:
        unregister_node("com.acme.spark.MergeRows")
    assert edges(event, "merged") == {
        "x": [("ledger_rows", "a", "IDENTITY+TRANSFORMATION")],
        "y": [("ledger_rows", "a", "TRANSFORMATION"), ("ledger_rows", "b", "TRANSFORMATION")],
    }
    assert "unknown" not in event["outputs"][0]["facets"]["columnLineage"]


def test_columns_are_marked_unknown_when_a_node_has_no_handler(
    spark: SparkSession, events: Events, table: str, tmp_path: Path
) -> None:
    merged_rows(spark, spark.table(table)).write().mode("overwrite").parquet(str(tmp_path / "unhandled"))
    event = events.only("COMPLETE", output="unhandled")
    assert edges(event, "unhandled")["x"] == [
        ("ledger_rows", "a", "UNKNOWN"),
        ("ledger_rows", "b", "UNKNOWN"),
    ]
    facet = event["outputs"][0]["facets"]["columnLineage"]
    assert facet["unknown"] == [{"what": "MergeRows", "reason": "no rule for com.acme.spark.MergeRows"}]


def test_facets_go_out_with_the_next_event_when_they_are_registered_in_mid_job(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    exec(compile(examples()[4], "example 3", "exec"), {"spark": spark, "folder": str(tmp_path / "orders")})
    sent = [event for event in events if "qualityCheck" in event["run"]["facets"]]
    assert [event["eventType"] for event in sent] == ["START"]
    assert sent[0]["run"]["facets"]["qualityCheck"]["bad"] == 15
    assert sent[0]["job"]["facets"]["team"]["pager"] == "orders-oncall"
    assert sent[0]["run"]["runId"] == events.only("COMPLETE", output="orders")["run"]["runId"]


@pytest.mark.parametrize(("number", "home"), list(enumerate(HOMES)), ids=list(HOMES))
def test_a_jvm_node_describes_itself_when_it_implements_the_interfaces(
    spark: SparkSession, events: Events, table: str, tmp_path: Path, number: int, home: str
) -> None:
    frame = Extension(spark, home, number).frame(spark.table(table).selectExpr("a as x", "upper(b) as y"))
    frame.write().mode("overwrite").parquet(str(tmp_path / "ledger"))
    event = events.only("COMPLETE", output="ledger")
    read = {each["name"]: each for each in event["inputs"]}
    assert read["entries"]["namespace"] == "ledger://acme"
    version = read["entries"]["facets"]["version"]
    assert (version["datasetVersion"], version["branch"]) == ("42", "main")
    # by delegate: the dataset of the relation below, with a facet of the node's own
    written = next(each for each in event["outputs"] if each["name"].endswith("ledger_rows"))
    assert written["facets"]["version"]["datasetVersion"] == "43"
    assert "schema" in written["facets"]
    assert edges(event, "ledger") == {
        "x": [("ledger_rows", "a", "IDENTITY")],
        "y": [("ledger_rows", "b", "TRANSFORMATION")],
    }
    assert "extractionError" not in event["run"]["facets"]


@pytest.mark.long
def test_a_jvm_node_describes_itself_when_it_was_compiled_with_the_published_interfaces(
    spark: SparkSession, events: Events, table: str, tmp_path: Path
) -> None:
    try:
        node = Published(spark, find_interfaces())
    except Missing as missing:
        pytest.skip(str(missing))
    node.frame(spark.table(table).selectExpr("a as x")).write().parquet(str(tmp_path / "published"))
    event = events.only("COMPLETE", output="published")
    read = {each["name"]: each for each in event["inputs"]}
    assert read["entries"]["namespace"] == "ledger://acme"
    assert read["entries"]["facets"]["version"]["datasetVersion"] == "42"
    written = next(each for each in event["outputs"] if each["name"].endswith("ledger_rows"))
    assert written["facets"]["version"]["datasetVersion"] == "43"
    assert "schema" in written["facets"], "by delegate: the dataset of the relation below"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert "extractionError" not in event["run"]["facets"]


def test_only_its_own_result_is_lost_when_a_handler_raises(
    spark: SparkSession, events: Events, table: str, tmp_path: Path
) -> None:
    class Broken:
        def __init__(self, node: object) -> None:
            raise RuntimeError("no such ledger")

    register_node("MergeRows", Broken)
    try:
        merged_rows(spark, spark.table(table)).write().mode("overwrite").parquet(str(tmp_path / "broken"))
        start, end = events.select(output="broken")
    finally:
        unregister_node("MergeRows")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert edges(end, "broken")["x"] == [("ledger_rows", "a", "UNKNOWN"), ("ledger_rows", "b", "UNKNOWN")]
    assert "no such ledger" in str(
        start["run"]["facets"]["extractionError"]
    )  # the methods of a plan are called once


def test_files_and_rows_are_reported_when_the_builders_of_the_page_are_installed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {"__name__": "example_builders"}
    text = next(each for each in examples() if "ExampleFactory" in each)
    exec(compile(text, "example", "exec"), made)
    module = types.ModuleType("example_builders")
    module.__dict__.update(made)
    monkeypatch.setitem(sys.modules, "example_builders", module)
    spark.range(4).write.parquet(str(tmp_path / "in"))
    with collect_lineage(spark, extensions=("example_builders.ExampleFactory",)) as events:
        spark.read.parquet(str(tmp_path / "in")).write.parquet(str(tmp_path / "out"))
        event = events.only("COMPLETE", output=str(tmp_path / "out"))
    assert [each["name"] for each in event["inputs"]] == [str(tmp_path / "in")]
    facet = event["outputs"][0]["outputFacets"]["stageStatistics"]
    assert facet["rowCount"] == 4
    assert facet["size"] > 0


def test_a_handler_is_found_by_either_name_when_it_is_registered() -> None:
    def handler(node: PlanNode) -> object:
        return node

    register_node("com.acme.Whole", handler)
    register_node("Short", handler)
    assert find_handler("com.acme.Whole") is handler
    assert find_handler("com.acme.Short") is handler
    assert find_handler("com.acme.Other") is None
    unregister_node("com.acme.Whole")
    unregister_node("Short")
    assert find_handler("com.acme.Whole") is None


def test_a_facet_waits_when_the_event_is_older_than_it() -> None:
    FacetRegistry.register_run_facet("late", {"x": 1})
    assert FacetRegistry.take(0) == ({}, {})
    assert FacetRegistry.take(1 << 60) == ({"late": {"x": 1}}, {})
    assert FacetRegistry.take(1 << 60) == ({}, {})


def test_no_facet_reaches_the_next_application_when_one_has_ended() -> None:
    FacetRegistry.register_run_facet("left", {"x": 1})
    FacetRegistry.register_job_facet("left", {"x": 1})
    FacetRegistry.clear()
    assert FacetRegistry.take(1 << 60) == ({}, {})
    assert FacetRegistry.context is None
