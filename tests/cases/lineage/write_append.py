"""Rows are added to a folder."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).write.parquet(str(tmp / "out"))


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id").write.mode("append").parquet(str(tmp / "out"))
