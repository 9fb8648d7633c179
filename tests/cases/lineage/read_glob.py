"""A pattern of paths is the folder above it."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "in").mkdir()
    (tmp / "in" / "a.csv").write_text("1,2\n")
    (tmp / "in" / "b.csv").write_text("3,4\n")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.csv(str(tmp / "in" / "*.csv")).count()
