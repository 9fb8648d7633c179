"""A view is an output; its columns come from the table."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE VIEW v COMMENT 'the old' AS SELECT name FROM people WHERE age > 40")
