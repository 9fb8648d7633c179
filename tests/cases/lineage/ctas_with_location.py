"""CREATE TABLE AS SELECT at a place of its own."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t USING parquet LOCATION '%s' AS SELECT id FROM people" % (tmp / "place"))
