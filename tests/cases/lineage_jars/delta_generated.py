"""A column of Delta that is generated from another one."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    jvm: Any = spark._jvm
    tables = jvm.io.delta.tables.DeltaTable
    day = tables.columnBuilder(spark._jsparkSession, "day").dataType("DATE")
    made = tables.createOrReplace(spark._jsparkSession).tableName("generated_t")
    made = made.addColumn("at", "TIMESTAMP").addColumn("id", "BIGINT")
    made.addColumn(day.generatedAlwaysAs("CAST(at AS DATE)").build()).execute()
    spark.sql("SELECT TIMESTAMP '2026-01-31 10:00:00' AS at, 7L AS id").write.parquet(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(f"INSERT INTO generated_t (at, id) SELECT at, id FROM parquet.`{tmp}/in`")
