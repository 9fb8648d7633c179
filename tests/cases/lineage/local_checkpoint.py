"""After a local checkpoint the source is still known."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    kept = people.where("age > 40").localCheckpoint()
    kept.select("name").write.parquet(str(tmp / "out"))
