"""Two inputs, each with its own numbers."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    orders = spark.read.parquet(str(tmp / "orders"))
    joined = people.join(orders, people.id == orders.person).groupBy("name").sum("amount")
    joined.toDF("name", "total").write.parquet(str(tmp / "out"))
