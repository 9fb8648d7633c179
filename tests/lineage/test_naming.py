"""Names of datasets and jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.lineage.naming.jdbc import jdbc_id
from headwater.lineage.naming.names import (
    DatasetId,
    TableName,
    folder_namespace,
    job_name,
    kafka_id,
    normalized,
    path_id,
    path_suffix,
    source_uri,
    table_symlink,
)

CASES = Path(__file__).parent.parent / "cases" / "names"


def _rows(file: str) -> list[list[str]]:
    lines = (CASES / file).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_every_connection_has_the_name_that_openlineage_java_gives_it() -> None:
    differ = []
    for url, table, properties, namespace, name in _rows("jdbc.tsv"):
        known = dict(pair.split("=", 1) for pair in properties.split(";") if "=" in pair)
        if (found := jdbc_id(url, table, known)) != (namespace, name):
            differ.append((url, table, found))
    assert differ == []
    assert len(_rows("jdbc.tsv")) == 165


def test_every_path_has_the_name_that_openlineage_java_gives_it() -> None:
    differ = []
    for path, table, namespace, name in _rows("paths.tsv"):
        path = path.removeprefix("-")
        inside = DatasetId(folder_namespace(path), table.strip("'") or "/")
        found = path_id(path) if table == "-" else inside
        if found != (namespace, name):
            differ.append((path, table, found))
    assert differ == []
    assert [table for _, table, *_ in _rows("paths.tsv")].count("-") == 36


@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("/data/orders/", "file", "/data/orders"),
        ("file:/data/orders", "file", "/data/orders"),
        ("file:///data/orders", "file", "/data/orders"),
        ("/", "file", "/"),
        ("s3://bucket/a/b", "s3://bucket", "a/b"),
        ("s3a://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3n://key:secret@bucket/a", "s3://bucket", "a"),
        ("s3a://bucket", "s3://bucket", "/"),
        ("gs://bucket/a", "gs://bucket", "a"),
        (
            "abfs://box@account.dfs.core.windows.net/a/b",
            "abfss://box@account.dfs.core.windows.net",
            "a/b",
        ),
        (
            "wasb://box@account.blob.core.windows.net/a",
            "wasbs://box@account.blob.core.windows.net",
            "a",
        ),
        ("hdfs://namenode:8020/data/orders", "hdfs://namenode:8020", "/data/orders"),
        ("hdfs:/data/orders", "hdfs", "/data/orders"),
        ("dbfs:/mnt/orders", "dbfs", "/mnt/orders"),
        ("https://user:secret@host/data", "https://host", "/data"),
    ],
)
def test_a_path_has_the_name_of_the_specification_when_it_is_of_any_scheme(
    uri: str, namespace: str, name: str
) -> None:
    assert path_id(uri) == DatasetId(namespace, name)


@pytest.mark.parametrize(
    ("url", "table", "namespace", "name"),
    [
        ("jdbc:postgresql://Host/shop", "public.orders", "postgres://host:5432", "shop.public.orders"),
        (
            "jdbc:postgresql://host:6432/shop?user=me&password=p",
            "orders",
            "postgres://host:6432",
            "shop.orders",
        ),
        (
            "jdbc:postgresql://host/shop?currentSchema=app",
            "orders",
            "postgres://host:5432",
            "shop.app.orders",
        ),
        ("jdbc:postgresql://a,b:6432/shop", "t", "postgres://a:5432,b:6432", "shop.t"),
        ("jdbc:mysql://host/shop", "orders", "mysql://host:3306", "shop.orders"),
        ("jdbc:mysql://host/shop", "shop.orders", "mysql://host:3306", "shop.orders"),
        ("jdbc:postgresql://host/shop", "shop.orders", "postgres://host:5432", "shop.shop.orders"),
        ("jdbc:teradata://host/DATABASE=a,b=c", "t", "teradata://host:1025", "a.t"),
        ("jdbc:sqlserver://host;databaseName=a,b", "t", "sqlserver://host", "a,b.t"),
        ("jdbc:mysql:loadbalance://a,b/shop", "t", "mysql://a:3306,b:3306", "shop.t"),
        ("jdbc:mariadb://host:3307/shop", "`orders`", "mysql://host:3307", "shop.orders"),
        (
            "jdbc:sqlserver://host;databaseName=shop;password=p",
            "dbo.t",
            "sqlserver://host",
            "shop.dbo.t",
        ),
        (
            "jdbc:sqlserver://host\\one:1500;database=shop",
            "[dbo].[t]",
            "sqlserver://host:1500/one",
            "shop.dbo.t",
        ),
        ("jdbc:oracle:thin:@//host/service", "HR.T", "oracle://host:1521", "service.HR.T"),
        ("jdbc:oracle:thin:scott/tiger@host:1522:sid", "T", "oracle://host:1522", "sid.T"),
        (
            "jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=Box)(PORT=1523))"
            "(CONNECT_DATA=(SERVICE_NAME=svc)))",
            "HR.T",
            "oracle://box:1523",
            "svc.HR.T",
        ),
        ("jdbc:db2://host/shop:user=me;password=p;", "APP.T", "db2://host:6789", "shop.APP.T"),
        (
            "jdbc:teradata://host/DATABASE=shop,DBS_PORT=1026",
            "t",
            "teradata://host:1026",
            "shop.t",
        ),
        ("jdbc:trino://host/hive/sales", "orders", "trino://host:443", "hive.sales.orders"),
        ("jdbc:trino://host/hive/sales", "raw.orders", "trino://host:443", "hive.raw.orders"),
        ("jdbc:clickhouse://host/shop", "orders", "clickhouse://host:8123", "shop.orders"),
        (
            "jdbc:snowflake://org-account.snowflakecomputing.com/?db=SHOP",
            "PUBLIC.T",
            "snowflake://org-account",
            "SHOP.PUBLIC.T",
        ),
        ("jdbc:derby:memory:shop;create=true", "T", "derby:memory", "shop.T"),
        ("jdbc:derby:/data/shop;create=true", "APP.T", "file:/data/shop", "APP.T"),
        ("jdbc:sqlite:/data/shop.db", "t", "sqlite:/data/shop.db", "t"),
        ("jdbc:h2:mem:shop;DB_CLOSE_DELAY=-1", "t", "h2:memory", "shop.t"),
        ("jdbc:unknown://host:99/shop?token=x", "a.t", "unknown://host:99", "shop.a.t"),
    ],
)
def test_a_jdbc_table_has_the_database_in_its_name_when_the_url_has_it(
    url: str, table: str, namespace: str, name: str
) -> None:
    found = jdbc_id(url, table)
    assert found == DatasetId(namespace, name)
    assert "password" not in "".join(found)


def test_the_database_comes_from_the_properties_when_the_url_has_none() -> None:
    found = jdbc_id("jdbc:sqlserver://host", "dbo.t", {"databaseName": "shop"})
    assert found == DatasetId("sqlserver://host", "shop.dbo.t")


def test_a_topic_is_on_its_first_server_when_there_are_several() -> None:
    assert kafka_id("one:9093,two:9093", "orders") == DatasetId("kafka://one:9093", "orders")
    assert kafka_id("SASL_SSL://one", "orders") == DatasetId("kafka://one:9092", "orders")


def test_a_table_is_named_by_glue_the_metastore_or_the_warehouse_when_they_are_there() -> None:
    table = TableName("spark_catalog", "db", "t")
    assert table_symlink(
        table, warehouse="/w", metastore_uris="thrift://m:9083", glue=("eu", "1")
    ) == DatasetId("arn:aws:glue:eu:1", "table/db/t")
    assert table_symlink(table, warehouse="/w", metastore_uris="thrift://m,thrift://n") == DatasetId(
        "hive://m:9083", "db.t"
    )
    assert table_symlink(table, warehouse="file:/w") == DatasetId("file:/w", "db.t")
    assert table_symlink(table, warehouse="s3a://b/w") == DatasetId("s3://b/w", "db.t")
    assert table_symlink(table, warehouse="") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Execute InsertIntoHadoopFsRelationCommand", "execute_insert_into_hadoop_fs_relation_command"),
        ("AdaptiveSparkPlan", "adaptive_spark_plan"),
        ("My Ünïcode-App!", "my_unicode_app"),
        ("ETLJob2Run", "etl_job2_run"),
        ("already_snake", "already_snake"),
        ("  --x--  ", "x"),
        ("", ""),
    ],
)
def test_a_part_of_a_job_name_is_snake_case_when_it_is_normalized(text: str, expected: str) -> None:
    assert normalized(text) == expected


def test_a_job_name_ends_with_what_is_written_when_that_is_known() -> None:
    assert path_suffix(DatasetId("file", "/data/lake/orders")) == "lake_orders"
    assert path_suffix(DatasetId("", "db.orders")) == "db_orders"
    assert job_name("app", ["node"], "db_orders") == "app.node.db_orders"
    assert job_name("app", ["node"], "", dots=False) == "app_node"


@pytest.mark.parametrize(
    ("namespace", "uri"), [("file", "file:///"), ("s3://bucket", "s3://bucket"), ("a b", "urn:a b")]
)
def test_a_namespace_becomes_a_uri_when_it_is_none(namespace: str, uri: str) -> None:
    assert source_uri(namespace) == uri
