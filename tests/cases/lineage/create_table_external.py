"""A table is created over files that are there."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long) USING parquet LOCATION '%s'" % (tmp / "people"))
