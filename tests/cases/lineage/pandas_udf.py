"""mapInPandas between input and output."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.mapInPandas(lambda frames: frames, people.schema).write.parquet(str(tmp / "out"))
