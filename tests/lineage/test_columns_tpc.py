"""The 22 queries of TPC-H and the 99 of TPC-DS: analyzed by Spark, each column followed, nothing unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.lineage.columns.written_columns import column_lineage
from headwater.lineage.jvm.plan import Node
from headwater.lineage.naming.names import DatasetId
from tests.lineage.plans import Walker
from tests.lineage.tpc import Benchmark, benchmark
from tests.parts.cache import Missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def walker(spark: SparkSession) -> Iterator[Walker]:
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    yield Walker(spark)
    spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


@pytest.fixture(scope="module", params=["tpch", "tpcds"])
def suite(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Benchmark]:
    try:
        found = benchmark(request.param)
    except Missing as missing:
        pytest.skip(str(missing))
    for table, columns in found.tables.items():
        kinds = ", ".join(f"{name} {kind.replace('VARCHAR', 'STRING')}" for name, kind in columns.items())
        folder = tmp_path_factory.mktemp(request.param) / table
        folder.mkdir()
        spark.read.schema(kinds).parquet(str(folder)).createOrReplaceTempView(table)
    yield found
    for table in found.tables:
        spark.catalog.dropTempView(table)


def folder_of(node: Node) -> list[DatasetId]:
    """The folder that a leaf reads, which has the name of the table."""
    relation = (node.fields or {}).get("relation") or {}
    return [DatasetId("test", str(path).rpartition("/")[2]) for path in relation.get("paths") or ()]


def test_every_column_is_followed_when_the_queries_of_tpc_are_analyzed(
    suite: Benchmark, walker: Walker
) -> None:
    for number, text in sorted(suite.queries.items()):
        lineage = column_lineage(walker.sql(text.strip().rstrip(";")), folder_of)
        assert (lineage.gaps, lineage.cut) == ([], []), f"query {number}"
        edges = [*lineage.dataset, *(one for inputs in lineage.fields.values() for one in inputs)]
        assert edges, f"query {number} comes from nothing"
        for one in edges:
            assert one.dataset.name in suite.tables, f"query {number}: {one}"
            assert one.field in suite.tables[one.dataset.name], f"query {number}: {one}"
            assert all(kind.subtype != "UNKNOWN" and not kind.note for kind in one.transformations), (
                f"query {number}"
            )
