"""Datasets of plan nodes without Spark: names, symlinks, nested commands, statistics."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.lineage.datasets import connectors
from headwater.lineage.datasets.catalogs import Catalogs
from headwater.lineage.datasets.merge import merged_inputs, merged_outputs
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.datasets.reads import Sources
from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.facets.dataset import lifecycle, schema_of_struct, symlinks
from headwater.lineage.facets.statistics import add_input_statistics, add_output_statistics
from headwater.lineage.jvm.messages import ExecutedNode, StageDone
from headwater.lineage.naming.names import DatasetId, TableName
from headwater.lineage.naming.normalize import NameNormalizer

WAREHOUSE = {"spark.sql.warehouse.dir": "file:/warehouse"}


def sources(**conf: str) -> Sources:
    return Sources(Catalogs(WAREHOUSE | {key.replace("_", "."): value for key, value in conf.items()}))


def names(found: Any) -> list[tuple[str, str]]:
    return [(one.id.namespace, one.id.name) for one in found or ()]


def of_relation(relation: dict[str, Any]) -> list[tuple[str, str]]:
    return names(sources().datasets_of_relation("LogicalRelation", {"relation": relation}))


def links(found: Any) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in found[0].facets["symlinks"]["identifiers"]]


def table(**more: Any) -> dict[str, Any]:
    return {"@": "catalogTable", "id": {"@": "id", "database": "db", "table": "t"}, "type": "MANAGED", **more}


def test_a_hive_table_has_the_metastores_name_when_there_is_one() -> None:
    catalogs = sources(spark_hadoop_hive_metastore_uris="thrift://meta:9083")
    found = catalogs.datasets_of_relation(
        "HiveTableRelation", {"tableMeta": table(location="hdfs://nn:8020/w/db.db/t", provider="hive")}
    )
    assert names(found) == [("hdfs://nn:8020", "/w/db.db/t")]
    assert links(found) == [("hive://meta:9083", "db.t")]


def test_a_table_has_glues_name_when_glue_is_the_metastore() -> None:
    conf = {
        "spark.hadoop.hive.metastore.client.factory.class": "com.x.AWSGlueDataCatalogHiveClientFactory",
        "spark.glue.accountId": "123",
        "spark.hadoop.aws.region": "eu-west-1",
    }
    found = Sources(Catalogs(WAREHOUSE | conf)).tables.of_document(
        table(location="s3://b/t", provider="parquet")
    )
    assert links(found) == [("arn:aws:glue:eu-west-1:123", "table/db/t")]


def test_an_unqualified_name_is_of_the_current_database_when_one_is_set() -> None:
    catalogs = Catalogs(WAREHOUSE, locate=lambda database: f"file:/elsewhere/{database}")
    catalogs.database = "sales"
    found = Sources(catalogs).tables.by_name({"@": "id", "table": "t"})
    assert names(found) == [("file", "/elsewhere/sales/t")]
    assert found[0].location_is_default


def test_a_table_is_looked_up_when_a_command_holds_its_name_alone() -> None:
    asked: list[tuple[str, str]] = []

    def lookup(database: str, name: str) -> str:
        asked.append((database, name))
        return (
            '{"id":{"database":"db","table":"t"},"type":"EXTERNAL","location":"file:/place","provider":"orc"}'
        )

    found = Sources(Catalogs(WAREHOUSE, lookup=lookup)).tables.by_name(
        {"@": "id", "database": "db", "table": "t"}
    )
    assert names(found) == [("file", "/place")]
    assert asked == [("db", "t")]


def test_the_location_comes_from_an_earlier_plan_when_the_catalog_fails() -> None:
    def lookup(database: str, name: str) -> str:
        raise ConnectionError("gone")

    catalogs = Catalogs(WAREHOUSE, lookup=lookup)
    catalogs.remember(TableName("", "db", "t"), table(location="file:/place"))
    assert names(Sources(catalogs).tables.by_name({"@": "id", "database": "db", "table": "t"})) == [
        ("file", "/place")
    ]
    catalogs.forget_database("db")
    assert names(Sources(catalogs).tables.by_name({"@": "id", "database": "db", "table": "t"})) == [
        ("file:/warehouse", "db.t")  # no place is made up
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"table": {"cls": "x.TextSocketTable", "name": "Socket[host:99]"}},
            [("socket://host:99", "host:99")],
        ),
        ({"table": {"cls": "x.RateStreamTable", "name": "Rate"}}, [("spark", "rate")]),
        ({"table": {"cls": "x.NoopTable$", "name": "noop-table"}}, []),
        ({"table": {"cls": "x.ConsoleTable$", "name": "console"}}, []),
        (
            {"table": {"cls": "x.v2.parquet.ParquetTable", "paths": ["/a", "/b"], "format": "Parquet"}},
            [("file", "/a"), ("file", "/b")],
        ),
        (
            {
                "table": {"cls": "x.PythonTable", "provider": "rest"},
                "options": {"url": "https://u:p@h/x?t=1"},
            },
            [("https://h", "/x")],
        ),
        ({"table": {"cls": "x.PythonTable", "provider": "rest"}}, [("", "")]),
        (
            {
                "table": {"cls": "x.T", "name": "c.db.t"},
                "catalog": {"name": "c"},
                "identifier": {"@": "name", "namespace": ["db"], "name": "t"},
            },
            [("catalog:c", "db.t")],
        ),
        (
            {
                "table": {"cls": "org.apache.iceberg.spark.source.SparkTable", "location": "s3://b/w/db/t"},
                "catalog": {"name": "c"},
                "identifier": {"@": "name", "namespace": ["db"], "name": "t"},
            },
            [("s3://b", "w/db/t")],
        ),
    ],
)
def test_a_table_of_the_second_api_is_named_by_its_kind_when_it_has_one(
    fields: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert names(sources().v2.of_fields(fields)) == expected


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"type": "rest", "uri": "http://rest:8181"}, ("http://rest:8181", "db.t")),
        ({"type": "hive", "uri": "thrift://meta:9083"}, ("hive://meta:9083", "db.t")),
        ({"type": "hadoop", "warehouse": "/ice"}, ("file:/ice", "db.t")),
    ],
)
def test_an_iceberg_table_has_the_name_of_its_catalog_when_its_type_is_known(
    conf: dict[str, str], expected: tuple[str, str]
) -> None:
    settings = {f"spark.sql.catalog.c.{key}": value for key, value in conf.items()}
    settings["spark.sql.catalog.c"] = "org.apache.iceberg.spark.SparkCatalog"
    catalogs = Catalogs(WAREHOUSE, read=lambda: settings)
    fields = {
        "table": {
            "cls": "org.apache.iceberg.spark.source.SparkTable",
            "location": "file:/ice/db/t",
            "version": "17",
        },
        "catalog": {"name": "c"},
        "identifier": {"@": "name", "namespace": ["db"], "name": "t"},
    }
    found = Sources(catalogs).v2.of_fields(fields)
    assert links(found) == [expected]
    assert found[0].facets["version"]["datasetVersion"] == "17"
    assert found[0].facets["storage"]["storageLayer"] == "iceberg"


def test_an_unknown_relation_is_named_by_its_path_when_it_has_one() -> None:
    relation = {"@": "relation", "cls": "com.x.Relation", "f": {"parameters": {"path": "s3a://b/x"}}}
    assert of_relation(relation) == [("s3://b", "x")]


def test_a_relation_has_no_invented_name_when_nothing_in_it_names_a_dataset() -> None:
    fields = {"relation": {"@": "relation", "cls": "com.x.Relation"}}
    found = Sources(Catalogs(WAREHOUSE)).logical_relation(fields)
    assert [(each.id, each.unknown) for each in found] == [
        (("", ""), "the dataset of a relation of class com.x.Relation is not known")
    ]


def test_many_paths_are_their_common_folder_when_there_are_more_than_the_limit() -> None:
    paths = [f"file:/lake/in/{n}" for n in range(200)]
    relation: dict[str, Any] = {"@": "files", "format": "parquet", "paths": paths}
    assert of_relation(relation) == [("file", "/lake/in")]
    paths.append("file:/lake/in")
    assert of_relation(relation) == [("file", "/lake/in")]
    relation |= {"paths": ["file:/lake/in/1"], "folder": "file:/lake/in"}
    assert of_relation(relation) == [("file", "/lake/in")]


def test_a_query_is_its_tables_when_a_parser_is_installed() -> None:
    options = {"dbtable": "(SELECT a\n  FROM s.orders JOIN people USING (id)) AS x"}
    found = connectors.jdbc("jdbc:postgresql://h/shop", options)
    assert sorted(names(found)) == [
        ("postgres://h:5432", "shop.people"),
        ("postgres://h:5432", "shop.s.orders"),
    ]


@pytest.mark.parametrize("query", ["(VALUES (1),\n  (2)) AS x", "EXEC orders_of 17"])
def test_a_query_is_named_by_its_text_when_it_cannot_be_parsed(query: str) -> None:
    (found,) = connectors.jdbc("jdbc:postgresql://h/shop", {"query": query})
    assert found.id.namespace == "postgres://h:5432"
    assert found.id.name in ("VALUES (1), (2)", "EXEC orders_of 17")
    assert found.facets["datasetType"]["datasetType"] == "QUERY"


def test_topics_come_from_any_of_the_options_when_kafka_is_read() -> None:
    servers = {"kafka.bootstrap.servers": "a:1,b:2"}
    assert [one.id.name for one in connectors.kafka(servers, {"subscribe": "x, y"})] == ["x", "y"]
    assert [one.id.name for one in connectors.kafka(servers, {"assign": '{"q":[0],"p":[1]}'})] == ["p", "q"]
    (found,) = connectors.kafka(servers, {"subscribePattern": "ev.*"})
    assert found.id == DatasetId("kafka://a:1", "ev.*")
    assert found.facets["kafka_subscription"]["subscribePattern"] == "ev.*"
    seen = connectors.kafka(servers, {"subscribePattern": "ev.*"}, topics=["ev1", "ev2"])
    assert [one.id.name for one in seen] == ["ev1", "ev2"]


NAMES = NameNormalizer()


def output(name: str, *, default: bool = False, **facets: Any) -> OutputDatasetBuilder:
    made = OutputDatasetBuilder("file", name, facets)
    made.location_is_default = default
    return made


def test_the_path_of_a_nested_command_is_used_when_the_outer_one_has_a_default_location() -> None:
    names = symlinks([(DatasetId("file:/w", "db.t"), "TABLE")])
    outer = output("/w/t", default=True, symlinks=names, lifecycleStateChange=lifecycle("CREATE"))
    inner = output("/elsewhere/t", symlinks=names, lifecycleStateChange=lifecycle("OVERWRITE"))
    (found,) = merged_outputs([(1, outer), (2, inner)], NAMES)
    assert found.id == DatasetId("file", "/elsewhere/t")
    assert found.facets["symlinks"] == names
    assert found.facets["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"


def test_a_new_table_stays_when_the_job_writes_one_other_dataset() -> None:
    names = symlinks([(DatasetId("file:/w", "db.t"), "TABLE")])
    outer = output("/w/t", default=True, symlinks=names, lifecycleStateChange=lifecycle("CREATE"))
    found = merged_outputs([(1, outer), (2, output("/elsewhere/u"))], NAMES)
    assert sorted(each.name for each in found) == ["/elsewhere/u", "/w/t"]
    assert all("symlinks" not in each.facets for each in found if each.name == "/elsewhere/u")


def test_a_default_location_stays_when_it_matches_neither_of_two_outputs() -> None:
    found = merged_outputs([(1, output("/w/t", default=True)), (2, output("/a")), (3, output("/b"))], NAMES)
    assert sorted(each.name for each in found) == ["/a", "/b", "/w/t"]


def test_an_output_of_mode_ignore_is_left_out_when_nothing_is_written() -> None:
    one = output("/w/t")
    one.only_if_written = True
    assert merged_outputs([(1, one)], NAMES) == []
    (found,) = merged_outputs([(1, one), (2, output("/w/t"))], NAMES)
    assert found.name == "/w/t"


def test_partitions_of_one_dataset_are_one_input_when_they_are_merged() -> None:
    parts = [(1, InputDatasetBuilder("file", f"/lake/t/day={day}", expr_ids=[day])) for day in (1, 2)]
    parts.append((1, InputDatasetBuilder("file", "/lake/t/_delta_log/x")))
    (found,) = merged_inputs(parts, NAMES)
    assert (found.name, found.expr_ids) == ("/lake/t", {1, 2})
    assert found.locations == {"/lake/t/day=1", "/lake/t/day=2"}


def read(name: str, *expr_ids: int) -> InputDatasetBuilder:
    return InputDatasetBuilder("file", name, expr_ids=expr_ids)


def scan(ids: list[int], rows: int, cls: str = "x.FileSourceScanExec") -> ExecutedNode:
    return ExecutedNode(
        cls=cls, name="scan", ids=ids, metrics={"numOutputRows": rows, "filesSize": 10 * rows}
    )


def test_metrics_belong_to_the_dataset_whose_columns_are_scanned_when_ids_agree() -> None:
    left, right = (
        InputDatasetBuilder("file", "/l", expr_ids=[1, 2]),
        InputDatasetBuilder("file", "/r", expr_ids=[3]),
    )
    add_input_statistics([left, right], [[scan([1], 5), scan([3], 7), scan([2], 1)], [scan([3], 7)]])
    assert left.input_facets["inputStatistics"]["rowCount"] == 6
    assert right.input_facets["inputStatistics"]["rowCount"] == 7, "nested executions count the same rows"


def test_no_metric_is_set_when_its_dataset_is_not_known() -> None:
    left, right = (
        InputDatasetBuilder("file", "/l", expr_ids=[1]),
        InputDatasetBuilder("file", "/r", expr_ids=[3]),
    )
    add_input_statistics([left, right], [[scan([8], 5)]])
    assert not left.input_facets
    assert not right.input_facets
    cached = InputDatasetBuilder("file", "/c", expr_ids=[1])
    add_input_statistics([cached], [[scan([1], 5, "x.InMemoryTableScanExec"), scan([1], 5, "x.RDDScanExec")]])
    assert not cached.input_facets


def test_the_only_input_without_metrics_gets_those_of_new_ids_when_the_optimizer_made_them() -> None:
    left, right = (
        InputDatasetBuilder("file", "/l", expr_ids=[1]),
        InputDatasetBuilder("file", "/r", expr_ids=[3]),
    )
    add_input_statistics([left, right], [[scan([1], 5), scan([8], 2)]])
    assert right.input_facets["inputStatistics"]["rowCount"] == 2


def test_metrics_of_stages_are_used_when_no_node_has_them() -> None:
    one = output("/o")
    stages = [StageDone(id=1, metrics={"records_written": 4, "bytes_written": 9}), StageDone(id=2)]
    add_output_statistics([one], [(1, [])], stages)
    facet = one.output_facets["outputStatistics"]
    assert (facet["rowCount"], facet["size"]) == (4, 9)


def test_the_oldest_columns_are_dropped_when_the_history_is_full() -> None:
    history = QueryHistory(limit=3)
    history.record([1, 2], [InputDatasetBuilder("file", "/a")])
    history.record([3, 4], [InputDatasetBuilder("file", "/b")])
    assert [id.name for id, _ in history.find([1, 2, 3])] == ["/a", "/b"]
    assert history.find([1]) == []


def test_a_schema_has_the_fields_of_nested_types() -> None:
    struct = {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "metadata": {"comment": "the key"}},
            {
                "name": "m",
                "type": {
                    "type": "map",
                    "keyType": "string",
                    "valueType": {"type": "array", "elementType": "date"},
                },
            },
        ],
    }
    first, second = schema_of_struct(struct)["fields"]
    assert first == {"name": "a", "type": "long", "description": "the key"}
    assert [field["name"] for field in second["fields"]] == ["key", "value"]
    assert second["fields"][1]["fields"] == [{"name": "_element", "type": "date"}]


def test_a_catalog_has_the_settings_of_its_session_when_sessions_differ() -> None:
    conf = {"spark.sql.catalog.c": "x.Catalog", "spark.sql.catalog.c.warehouse": "/one"}
    catalogs = Catalogs(conf)
    assert catalogs.settings_of("c")["warehouse"] == "/one"
    catalogs.session = {"spark.sql.catalog.c.warehouse": "/two"}
    assert catalogs.settings_of("c")["warehouse"] == "/two"
    catalogs.session = {}
    assert catalogs.settings_of("c")["warehouse"] == "/one"


def test_a_dataset_is_unknown_when_no_option_names_it() -> None:
    found = [
        *connectors.python_source("rest", {"pages": "3"}),
        *connectors.kafka({"subscribe": "orders"}),
        *connectors.jdbc("jdbc:postgresql://db/shop", {}),
        *connectors.socket({"port": "1"}),
    ]
    assert [(each.namespace, each.name) for each in found] == [("", "")] * 4
    assert all(each.unknown for each in found)
    named = connectors.python_source("rest", {"table": "orders"})
    assert [(each.namespace, each.name, each.unknown) for each in named] == [("python:rest", "orders", "")]
