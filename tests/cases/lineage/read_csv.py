"""csv is read and collected."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id", "name").write.option("header", True).csv(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.option("header", True).schema("id long, name string").csv(str(tmp / "in")).collect()
