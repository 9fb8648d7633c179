"""A DataFrame is written as parquet."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.where("age > 40").select("id", "name").write.parquet(str(tmp / "out"))
