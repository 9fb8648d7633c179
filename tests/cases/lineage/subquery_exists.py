"""A table that is read only inside EXISTS."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    for name in ("people", "orders"):
        spark.read.parquet(str(tmp / name)).createOrReplaceTempView(name)


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(
        "SELECT name FROM people p WHERE EXISTS (SELECT 1 FROM orders o WHERE o.person = p.id)"
    ).collect()
