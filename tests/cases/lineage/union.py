"""Two inputs one after the other."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    orders = spark.read.parquet(str(tmp / "orders"))
    people.select("id").union(orders.select("person")).write.parquet(str(tmp / "out"))
