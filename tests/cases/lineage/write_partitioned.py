"""Folders by the values of a column."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    orders = spark.read.parquet(str(tmp / "orders"))
    orders.write.partitionBy("day").parquet(str(tmp / "out"))
