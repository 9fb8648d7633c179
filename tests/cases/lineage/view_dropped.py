"""A view is dropped."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE VIEW v AS SELECT name FROM people")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("DROP VIEW v")
