"""A task of an RDD job fails."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    try:
        spark.sparkContext.textFile(str(tmp / "lines.txt")).map(lambda line: 1 / 0).saveAsTextFile(
            str(tmp / "out")
        )
    except Exception:
        pass
