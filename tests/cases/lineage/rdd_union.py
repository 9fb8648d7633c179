"""Two files, one output."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "a.txt").write_text("a\n")
    (tmp / "b.txt").write_text("b\n")


def run(spark: SparkSession, tmp: Path) -> None:
    context = spark.sparkContext
    both = context.textFile(str(tmp / "a.txt")).union(context.textFile(str(tmp / "b.txt")))
    both.saveAsTextFile(str(tmp / "out"))
