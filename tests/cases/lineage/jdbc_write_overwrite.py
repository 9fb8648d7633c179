"""A table of a database is replaced."""

from pathlib import Path

from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:jdbc_overwrite;create=true"


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id").write.jdbc(URL, "APP.PEOPLE")


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id").write.jdbc(URL, "APP.PEOPLE", "overwrite", {"user": "app", "password": "hidden"})
