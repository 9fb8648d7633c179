"""A shuffle between the file and the output."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    lines = spark.sparkContext.textFile(str(tmp / "lines.txt"))
    lines.map(lambda line: (line, 1)).reduceByKey(lambda a, b: a + b).saveAsTextFile(str(tmp / "out"))
