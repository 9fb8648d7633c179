"""A table is created."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    columns = "id long COMMENT 'key', s struct<a: int, b: array<string>>"
    spark.sql(f"CREATE TABLE t ({columns}) USING parquet COMMENT 'a table'")
