"""orc is read and collected."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.select("id", "name").write.orc(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.orc(str(tmp / "in")).collect()
