"""The pipeline watched by our own lineage: each column of a table is followed to its place in the events."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from headwater.cli.demo.shop import TEMPLATE, first_day, second_day
from headwater.destinations.duckdb import DuckDBDestination, DuckDBSettings
from headwater.destinations.table import ROW
from headwater.log.files.layout import EventFolder
from headwater.pipeline.lineage_hints import reading_from, writing_to
from headwater.pipeline.spark.storage import ObjectFolder, Staging, read_objects, write_objects
from headwater.pipeline.steps.read_lines import LINE, read_lines
from headwater.testing.lineage import collect_lineage
from tests.parts.cache import Missing
from tests.parts.object_store import ObjectStore
from tests.pipeline.drift_corpus import DRIFT
from tests.pipeline.rig import Rig
from tests.pipeline.stream_rig import StreamRig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERNAL = {"_unmapped_data"}


def value_at(event: Any, pointer: str) -> bool:
    """Whether an event has something at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(event, dict) or part not in event:
            return False
        event = event[part]
    return True


TODAY = date(2026, 11, 16)


def stored(event: dict[str, Any]) -> dict[str, Any]:
    """An event as the gateway would have put it into the file."""
    return {"_timestamp": "2026-11-16T10:00:00.000000Z", "source_ip": "127.0.0.1", **event}


def test_every_column_leads_to_a_pointer_in_the_file_when_the_demos_events_are_loaded(rig: Rig) -> None:
    days = [[stored(event) for event in day(60, TODAY)] for day in (first_day, second_day)]
    for day in days:
        rig.file(day)
    settings = rig.settings({"table_name_template": TEMPLATE})
    with collect_lineage(rig.spark) as events:
        assert rig.cycle(settings).is_complete
        completed = [event for event in events.select("COMPLETE") if event["outputs"]]
    pointers: dict[str, dict[str, set[str]]] = {}
    for event in completed:
        for output in event["outputs"]:
            assert output["namespace"] == f"duckdb://{rig.database()}"
            found = pointers.setdefault(output["name"].removeprefix("main."), {})
            for column, inputs in output["facets"]["columnLineage"]["fields"].items():
                for one in inputs["inputFields"]:
                    # one dataset for all files: token and time are trimmed from names
                    assert one["name"] == str(rig.incoming), one
                    assert one["field"] == "value"
                    found.setdefault(column, set()).add(one.get("jsonPointer", ""))
    with duckdb.connect(str(rig.database()), read_only=True) as database:
        tables = [row[0] for row in database.execute("select table_name from duckdb_tables()").fetchall()]
        tables = [table for table in tables if not table.startswith("_")]
        assert sorted(tables) == ["order_2026", "pageview_2026"]
        for table in tables:
            columns = [row[0] for row in database.execute(f"describe {table}").fetchall()]
            assert len(columns) > 8
            assert set(pointers[table]) == set(columns)
            every = [event for day in days for event in day]
            for column in set(columns) - INTERNAL:
                for pointer in pointers[table][column]:
                    # the pointer is a place that an event really has, and gives the column its name
                    assert any(value_at(event, pointer) for event in every), (column, pointer)
                    plain = pointer.lower().replace("/", "_").replace("-", "_").strip("_")
                    assert column.lower().strip("_") == plain.strip("_"), (column, pointer)
    assert pointers["order_2026"]["customer_address_city"] == {"/customer/address/city"}
    assert pointers["pageview_2026"]["eventn_ctx_user_is_new"] == {"/eventn_ctx/user/is_new"}


def test_every_column_leads_to_its_pointer_when_fields_drift(rig: Rig) -> None:
    texts = [
        "{"
        + ",".join(f'"{name}":{values[n]}' for name, values in DRIFT.items() if n < len(values) and values[n])
        + "}"
        for n in range(max(map(len, DRIFT.values())))
    ]
    with collect_lineage(rig.spark) as events:
        for part in (texts[:1], texts[1:]):
            rig.file([text.encode() for text in part])
            assert rig.cycle(rig.settings()).is_complete
        completed = [event for event in events.select("COMPLETE") if event["outputs"]]
    found: dict[str, set[str]] = {}
    for event in completed:
        [output] = event["outputs"]
        for column, inputs in output["facets"]["columnLineage"]["fields"].items():
            pointers = {one.get("jsonPointer", "") for one in inputs["inputFields"]}
            assert {one["field"] for one in inputs["inputFields"]} == {"value"}, column
            found.setdefault(column, set()).update(pointers)
    columns = rig.types().keys() - INTERNAL
    assert len(columns) >= len(DRIFT)
    assert found.keys() - INTERNAL == columns
    given = [json.loads(text) for text in texts]
    for column in columns:
        for pointer in found[column]:
            assert any(value_at(event, pointer) for event in given), (column, pointer)
            assert column == re.sub(r"\W", "_", pointer[1:].lower()), (column, pointer)


def test_every_column_leads_to_a_pointer_in_the_queue_when_a_stream_loads(
    spark: SparkSession, tmp_path: Path
) -> None:
    with StreamRig(spark, tmp_path) as rig, collect_lineage(spark) as events:
        few = rig.stream_settings({"table_name_template": TEMPLATE})
        rig.drained(few, *(stored(event) for event in first_day(60, TODAY)))
        many = rig.stream_settings({"table_name_template": "many"})
        rig.drained(many, *({"user": {"id": n}, "at": "2026-11-16"} for n in range(2_500)))
        queue = str(EventFolder(tmp_path / "events").queue("dwh"))
        completed = {table: events.select("COMPLETE", output=table)[-1] for table in ("order_2026", "many")}
    for event in completed.values():
        [read] = event["inputs"]
        assert (read["namespace"], read["name"]) == ("file", queue)
        assert [field["name"] for field in read["facets"]["schema"]["fields"]] == ["value"]
    fields = {
        table: event["outputs"][0]["facets"]["columnLineage"]["fields"] for table, event in completed.items()
    }
    found = {
        (table, column): {(one["name"], one["field"], one["jsonPointer"]) for one in inputs["inputFields"]}
        for table, columns in fields.items()
        for column, inputs in columns.items()
    }
    assert found["order_2026", "customer_address_city"] == {(queue, "value", "/customer/address/city")}
    assert found["many", "user_id"] == {(queue, "value", "/user/id")}


def test_every_column_leads_to_a_pointer_when_functions_read_and_stage_on_an_object_store(
    rig: Rig, tmp_path: Path
) -> None:
    """On a cluster tasks read copies of the files, and stage rows, by Python functions."""
    try:
        store = ObjectStore()
    except Missing as missing:
        pytest.skip(str(missing))
    file = rig.file([{"user": {"id": number}, "at": "2026-11-16"} for number in range(20)])
    dataset = "file", str(rig.incoming)
    with store, Staging(tmp_path / "staging", store.url("staging")) as staging, staging.folder() as folder:
        shared = staging.executor_folder(folder)
        assert isinstance(shared, ObjectFolder)
        with collect_lineage(rig.spark) as events:
            with reading_from(rig.spark, dataset, LINE, beside=[ROW]):
                lines = read_lines(rig.spark, file, staging=staging)
                routed = write_objects(lines.selectExpr("*", "'t' AS t"), shared / "lines")
                again = read_objects(rig.spark, shared / "lines", routed, f"{LINE} string, {ROW} bigint")
                rows = again.selectExpr(f"get_json_object({LINE}, '$.user.id') AS user_id", ROW)
                with writing_to(rig.spark, DuckDBDestination("dwh", DuckDBSettings(path="x.duckdb")), "t"):
                    assert len(write_objects(rows, shared / "rows")) == 1
            [event] = [each for each in events.select("COMPLETE") if each["outputs"]]
    [read], [output] = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == dataset
    assert [field["name"] for field in read["facets"]["schema"]["fields"]] == [LINE]
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["user_id"]
    [found] = output["facets"]["columnLineage"]["fields"]["user_id"]["inputFields"]
    assert (found["name"], found["field"], found["jsonPointer"]) == (str(rig.incoming), LINE, "/user/id")
    assert set(output["facets"]["columnLineage"]["fields"]) == {"user_id"}
