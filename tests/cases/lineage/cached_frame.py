"""A cached frame still comes from its source, when it is filled and when it is used."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.cache()
    people.count()
    people.select("id").write.parquet(str(tmp / "out"))
