"""One RDD over two files and a pattern."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "a.txt").write_text("a\n")
    (tmp / "in").mkdir()
    (tmp / "in" / "b.txt").write_text("b\n")


def run(spark: SparkSession, tmp: Path) -> None:
    context = spark.sparkContext
    context.textFile(f"{tmp}/a.txt,{tmp}/in/*.txt").saveAsTextFile(str(tmp / "out"))
