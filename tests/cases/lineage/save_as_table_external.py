"""A table with a place of its own."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.option("path", str(tmp / "place")).saveAsTable("t")
