"""textFile to saveAsTextFile."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    lines = spark.sparkContext.textFile(str(tmp / "lines.txt"))
    lines.map(str.upper).saveAsTextFile(str(tmp / "out"))
