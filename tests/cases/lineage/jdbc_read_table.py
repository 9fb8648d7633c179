"""A table of a database is read."""

from pathlib import Path

from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:jdbc_read;create=true"


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.jdbc(URL, "people")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.jdbc(URL, "people").write.parquet(str(tmp / "out"))
