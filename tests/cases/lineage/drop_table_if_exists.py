"""A table that is not there is not dropped."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS nothing")
