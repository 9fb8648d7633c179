"""A sequence file of pickled values."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sparkContext.parallelize([1, 2, 3]).saveAsPickleFile(str(tmp / "out"))
