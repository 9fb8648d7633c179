"""INSERT … VALUES has no input."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (a int) USING parquet")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO t VALUES (1), (2)")
