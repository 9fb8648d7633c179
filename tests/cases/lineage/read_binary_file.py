"""Whole files are read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.format("binaryFile").load(str(tmp / "lines.txt")).select("path", "length").collect()
