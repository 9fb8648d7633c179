"""The sink that keeps nothing: there is no output."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.format("noop").mode("overwrite").save()
