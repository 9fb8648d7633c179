"""wholeTextFiles, reduced in the driver: a read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "in").mkdir()
    (tmp / "in" / "b.txt").write_text("b\n")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sparkContext.wholeTextFiles(str(tmp / "in")).map(lambda pair: len(pair[1])).sum()
