"""A table with a place of its own is dropped; the files stay."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long) USING parquet LOCATION '%s'" % (tmp / "place"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("DROP TABLE t")
