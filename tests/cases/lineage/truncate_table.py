"""A table is emptied."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long) USING parquet")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("TRUNCATE TABLE t")
