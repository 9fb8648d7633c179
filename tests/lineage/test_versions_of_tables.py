"""Versions of Iceberg and Delta tables, from the reports of an execution; the cases on jars run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.versions import set_versions_read, set_versions_written
from headwater.lineage.jvm.messages import ExecutedNode
from tests.lineage.made import run


def query(*reports: Mapping[str, Any], executed: tuple[ExecutedNode, ...] = ()) -> QueryExecution:
    return QueryExecution(1, None, lake=reports, executed=executed)


def commit(table: str, version: int, **summary: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in summary.items()}
    return {"kind": "commit", "table": table, "version": version, "operation": "append", "summary": named}


def scan(table: str, version: int) -> dict[str, Any]:
    return {"kind": "scan", "table": table, "version": version, "filter": "true"}


def table(cls: type[Any], name: str = "ice.db.t", version: str = "5") -> Any:
    made = cls("file", "/ice/db/t", {"version": facets.version(version)})
    made.table_name, made.plan_version = name, version
    return made


def delta(version: int, **more: int) -> dict[str, Any]:
    return {"kind": "delta", "path": "file:/ice/db/t", "version": version, **more}


def version_of(each: Any) -> str | None:
    found = each.facets.get("version")
    return found["datasetVersion"] if found is not None else None


def test_an_output_has_the_version_that_was_written_when_iceberg_reports_a_commit() -> None:
    output = table(OutputDatasetBuilder)
    reports = (commit("ice.db.t", 7, added_records="3", app_id="local-1", deleted_data_files="1"),)
    set_versions_written([output], [query(*reports, commit("ice.db.other", 8))], run())
    assert version_of(output) == "7"
    report = output.role_facets["icebergCommitReport"]
    assert report["commitMetrics"] == {"addedRecords": 3, "removedDataFiles": 1}


def test_an_output_has_no_version_when_nothing_reports_the_one_that_was_written() -> None:
    output = table(OutputDatasetBuilder)
    set_versions_written([output], [query(commit("ice.db.other", 8))], run())
    assert version_of(output) is None


def test_an_output_keeps_its_version_when_an_extension_has_set_it() -> None:
    output = table(OutputDatasetBuilder)
    output.facets["version"] = facets.version("v2 of the extension")
    set_versions_written([output], [query(commit("ice.db.t", 7))], run())
    assert version_of(output) == "v2 of the extension"


def test_an_input_has_the_version_that_was_read_when_the_plan_has_a_later_one() -> None:
    found = table(InputDatasetBuilder, version="9")
    found.expr_ids = {3}
    metrics = {"resultDataFiles": 2, "numOutputRows": 5}
    node = ExecutedNode(cls="BatchScanExec", name="scan", ids=[3], metrics=metrics)
    set_versions_read([found], [query(scan("ice.db.t", 7), executed=(node,))])
    assert version_of(found) == "7"
    assert found.role_facets["icebergScanReport"]["scanMetrics"] == {"resultDataFiles": 2}


def test_an_input_keeps_the_plans_version_when_two_versions_were_read() -> None:
    found = table(InputDatasetBuilder, version="9")
    set_versions_read([found], [query(scan("ice.db.t", 7), scan("ice.db.t", 8))])
    assert version_of(found) == "9"


def test_deltas_version_is_left_out_when_it_may_be_another_writers() -> None:
    for report, expected in (
        (delta(6, before=5), "6"),
        (delta(8, before=5), None),
        (delta(5, before=5), None),
        (delta(0), "0"),
        (delta(6, time=50), "6"),
        (delta(6, time=500), None),
        (delta(6), None),
    ):
        output, ended = table(OutputDatasetBuilder), run()
        ended.ended = 100
        set_versions_written([output], [query(report)], ended)
        assert version_of(output) == expected, report


def test_an_output_has_the_version_in_deltas_memory_when_it_was_written_meanwhile() -> None:
    done = run()
    done.started, done.ended = 100, 200
    for written, expected in ((150, "4"), (99, None), (201, None)):
        output = table(OutputDatasetBuilder)
        report = {"kind": "delta-log", "path": "file:/ice/db/t", "version": 4, "time": written}
        before = {**report, "version": 3, "time": 1}
        set_versions_written([output], [query(report), query(before)], done)
        assert version_of(output) == expected
    output = table(OutputDatasetBuilder)
    old = {"kind": "delta-log", "path": "file:/ice/db/t", "version": 0, "time": 1}
    set_versions_written([output], [query(old)], done)
    assert version_of(output) is None
