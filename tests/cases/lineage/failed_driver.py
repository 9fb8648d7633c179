"""The target is there already: the command fails in the driver, before any task."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).write.parquet(str(tmp / "out"))


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    try:
        people.write.parquet(str(tmp / "out"))
    except Exception:
        pass
