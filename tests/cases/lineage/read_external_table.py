"""A table with a place of its own is read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t USING parquet LOCATION '%s'" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.table("t").collect()
