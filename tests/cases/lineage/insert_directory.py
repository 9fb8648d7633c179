"""INSERT OVERWRITE DIRECTORY."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT OVERWRITE DIRECTORY '%s' USING csv SELECT name FROM people" % (tmp / "out"))
