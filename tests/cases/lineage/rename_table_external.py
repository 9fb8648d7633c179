"""A table with a place of its own keeps it."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long) USING parquet LOCATION '%s'" % (tmp / "place"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("ALTER TABLE t RENAME TO u")
