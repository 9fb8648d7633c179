"""Rows of the driver have no dataset."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.createDataFrame([(1, "a")], "id int, name string").write.parquet(str(tmp / "out"))
