"""A folder of Delta is written."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp / "out"))
