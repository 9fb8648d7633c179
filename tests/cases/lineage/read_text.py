"""Lines of text are read and counted."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.text(str(tmp / "lines.txt")).count()
