"""Compatibility with openlineage-spark: settings, job names, RUNNING events and facets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headwater.lineage.events.job_names import JobNames
from headwater.lineage.extend.builders import OutputDatasetBuilder
from headwater.lineage.extend.spark_objects import RDD, HadoopRDD
from headwater.lineage.jvm.messages import AppStart, JobEnd, JobStart, SqlEnd, SqlStart
from headwater.lineage.runs import Execution, RunKind, RunTracker
from headwater.lineage.settings import LineageSettings, read
from headwater.testing.lineage import collect_lineage
from tests.lineage.made import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "01a1e2dd-20f3-783b-93f8-82d491afb988"


def test_events_have_the_form_of_openlineage_spark_when_its_settings_are_found() -> None:
    found = read({"spark.openlineage.namespace": "shop"}, environ={})
    assert found.is_like_upstream
    assert found.reads == "upstream"
    assert not read({"spark.master": "local"}, environ={}).is_like_upstream
    assert not read({"spark.openlineage.headwater.eventBytes": "9"}, environ={}).is_like_upstream
    own = {"spark.openlineage.namespace": "shop", "spark.openlineage.headwater.compatibility": "headwater"}
    assert not read(own, environ={}).is_like_upstream
    chosen = {"spark.openlineage.namespace": "shop", "spark.openlineage.filter.reads": "all"}
    assert read(chosen, environ={}).reads == "all"


def test_a_url_of_the_old_form_sets_names_and_keys_when_it_has_them() -> None:
    url = f"https://h:5000/api/v1/namespaces/shop%20a/jobs/etl/runs/{RUN}?app_name=load&api_key=k"
    found = read({"spark.openlineage.transport.url": url}, environ={})
    assert found.namespace == "shop a"
    assert found.app_name == "load"
    assert found.parent is not None
    assert (found.parent.namespace, found.parent.name, found.parent.run_id) == ("shop a", "etl", RUN)
    assert found.transport == {
        "url": "https://h:5000",
        "endpoint": "api/v1/lineage",
        "auth": {"type": "api_key", "apiKey": "k"},
    }
    found = read(
        {
            "spark.openlineage.transport.url": "http://h/api/v1/namespaces/shop",
            "spark.openlineage.namespace": "mine",
        },
        environ={},
    )
    assert found.namespace == "mine"
    assert found.parent is None


@pytest.mark.parametrize(
    ("cls", "fields", "output", "expected"),
    [
        ("InsertIntoHadoopFsRelationCommand", {}, "/tmp/warehouse/target", "warehouse_target"),
        ("AlterTableRenameCommand", {}, "/tmp/new", ""),
        ("DropTableCommand", {}, "/tmp/gone", ""),
        (
            "CreateDataSourceTableAsSelectCommand",
            {"table": {"@": "catalogTable", "id": {"@": "id", "database": "db", "table": "t"}}},
            "/w/t",
            "db_t",
        ),
        ("LoadDataCommand", {"table": {"@": "id", "table": "t"}}, "/w/t", "t"),
        (
            "AppendData",
            {"table": {"@": "node", "f": {"table": {"@": "table", "name": "spark_catalog.default.t"}}}},
            "/w/t",
            "spark_catalog_default_t",
        ),
        (
            "CreateTableAsSelect",
            {"name": {"@": "node", "f": {"identifier": {"@": "name", "namespace": ["a", "b"], "name": "t"}}}},
            "/w/t",
            "a_b_t",
        ),
        ("SaveIntoDataSourceCommand", {"options": {"dbTable": "s.t"}}, "x", "s_t"),
        (
            "SaveIntoDataSourceCommand",
            {
                "options": {"path": "/a/b/c"},
                "dataSource": {"cls": "org.apache.spark.sql.delta.DeltaDataSource"},
            },
            "/a/b/c",
            "b_c",
        ),
    ],
)
def test_job_names_end_as_in_openlineage_spark_when_events_have_its_form(
    cls: str, fields: dict[str, Any], output: str, expected: str
) -> None:
    one = run()
    node = {"id": 0, "cls": f"org.apache.spark.sql.{cls}", "f": fields}
    plan = msgspec.Raw(msgspec.json.encode({"v": 1, "root": 0, "nodes": [node]}))
    one.executions = [Execution(1, SqlStart(id=1, time=1, plan=plan, physical="Execute X"))]
    settings = LineageSettings(compatibility="openlineage-spark")
    name = JobNames(settings, "My App").of(one, [OutputDatasetBuilder("file", output)], ())
    assert name == ".".join(part for part in ("my_app", "execute_x", expected) if part)


def test_rdd_jobs_have_the_programs_own_names_when_events_have_the_form() -> None:
    chain = [
        RDD(4, "org.apache.spark.rdd.MapPartitionsRDD", parents=(3,)),
        RDD(3, "org.apache.spark.api.python.PythonRDD", parents=(2,)),
        RDD(2, "org.apache.spark.rdd.MapPartitionsRDD", "file:/in/a.txt", (1,)),
        HadoopRDD(1, "org.apache.spark.rdd.HadoopRDD", "file:/in/a.txt", (), ("file:/in/a.txt",)),
    ]
    names = JobNames(LineageSettings(compatibility="openlineage-spark"), "App")
    assert names.of(run(RunKind.RDD_JOB), (), chain) == "app.map_partitions_python_map_partitions_hadoop"
    named = [
        RDD(2, "org.apache.spark.rdd.MapPartitionsRDD", parents=(1,)),
        RDD(1, "org.apache.spark.rdd.ParallelCollectionRDD", "list of words"),
    ]
    assert names.of(run(RunKind.RDD_JOB), (), named) == "app.map_partitions_list_of_words"


def test_running_events_are_due_when_the_first_job_of_a_query_starts_and_ends() -> None:
    plan = msgspec.Raw(b'{"v":1,"root":0,"nodes":[{"id":0,"cls":"org.apache.spark.sql.Range"}]}')
    for sends, expected in (
        (True, ["START", "RUNNING", "RUNNING", "COMPLETE"]),
        (False, ["START", "COMPLETE"]),
    ):
        runs = RunTracker(sends_running=sends)
        runs.on_message(AppStart(id="a", name="shop", time=1))
        messages = (
            SqlStart(id=1, time=2, root=1, plan=plan),
            JobStart(id=1, time=3, execution=1, root=1),
            JobEnd(id=1, time=4),
            JobStart(id=2, time=4, execution=1, root=1),
            JobEnd(id=2, time=5),
            SqlEnd(id=1, time=5),
        )
        due = [each for message in messages for each in runs.on_message(message)]
        assert [str(each.state) for each in due] == expected


def test_plans_and_unknown_leaves_are_facets_when_they_are_wanted(
    spark: SparkSession, tmp_path: object
) -> None:
    disabled = frozenset({"debug"})
    with collect_lineage(spark, compatibility="openlineage-spark", disabled_facets=disabled) as events:
        spark.createDataFrame([(1,)], "a int").write.parquet(f"{tmp_path}/out")
        found = events.all
    states = [each["eventType"] for each in found if each["outputs"]]
    assert states == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    last = found[-1]
    assert last["job"]["name"].endswith(f".{str(tmp_path).rpartition('/')[2]}_out")
    assert last["outputs"][0]["facets"]["dataSource"]["uri"] == "file"
    facets = last["run"]["facets"]
    assert facets["spark.logicalPlan"]["plan"][0]["class"].endswith("InsertIntoHadoopFsRelationCommand")
    [unknown] = facets["spark_unknown"]["inputs"]
    assert unknown["outputAttributes"] == [{"name": "a", "type": "integer", "metadata": {}}]


def test_the_debug_facet_is_sent_when_it_is_wanted(
    spark: SparkSession, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facets(**settings: Any) -> dict[str, Any]:
        with collect_lineage(spark, compatibility="openlineage-spark", **settings) as events:
            frame = spark.createDataFrame([(1,)], "a int")
            for number in range(2, 22):
                frame = frame.where(f"a <> {number}")
            frame.write.mode("overwrite").parquet(f"{tmp_path}/out")
            found: dict[str, Any] = [each for each in events.all if each["outputs"]][-1]["run"]["facets"]
        return found

    monkeypatch.setenv("SHOP", "one")
    enabled = facets(disabled_facets=frozenset(), environment_variables=("SHOP",))
    assert enabled["environment-properties"]["environment-properties"] == {"SHOP": "one"}
    debug = enabled["debug"]
    assert debug["classpath"]["sparkVersion"] == spark.version
    assert debug["system"]["javaVersion"].startswith(("17", "21"))
    assert debug["memory"]["maxMemory"] > 100
    assert [each["className"].rpartition(".")[2] for each in debug["classpath"]["classDetails"]] == [
        "DeltaCatalog",
        "Catalog",
        "BigQueryRelation",
    ]
    first, *_ = debug["logicalPlan"]["nodes"]
    assert first["desc"].endswith("InsertIntoHadoopFsRelationCommand")
    smart = facets(debug_smart=True)  # nothing is read
    assert smart["debug"]["classpath"] == debug["classpath"]
    assert "debug" not in facets(debug_smart=True, debug_smart_mode="output-missing")
    small = facets(disabled_facets=frozenset(), debug_kilobytes=1)
    assert small["debug"]["logs"][0].startswith("Skipping debug facet due to payload size")
    assert "classpath" not in small["debug"]
