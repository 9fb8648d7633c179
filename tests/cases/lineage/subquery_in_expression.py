"""A table that is read only inside a scalar subquery is an input too."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    for name in ("people", "orders"):
        spark.read.parquet(str(tmp / name)).createOrReplaceTempView(name)


def run(spark: SparkSession, tmp: Path) -> None:
    query = "SELECT id, (SELECT max(amount) FROM orders) AS top FROM people"
    spark.sql(query).write.parquet(str(tmp / "out"))
