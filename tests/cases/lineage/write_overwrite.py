"""What was there is replaced."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).write.parquet(str(tmp / "out"))


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.mode("overwrite").parquet(str(tmp / "out"))
