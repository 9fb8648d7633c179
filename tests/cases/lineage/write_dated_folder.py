"""A folder named by a date is a part of the dataset above it."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.parquet(str(tmp / "out" / "2026-01-31"))
