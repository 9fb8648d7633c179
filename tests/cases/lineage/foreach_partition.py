"""foreachPartition is an RDD job that reads."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.foreachPartition(lambda rows: None)
