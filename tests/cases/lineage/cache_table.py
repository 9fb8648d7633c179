"""CACHE TABLE reads the table; what uses it later comes from there."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CACHE TABLE people")
    spark.sql("SELECT name FROM people").write.parquet(str(tmp / "out"))
