"""An RDD of a file becomes a DataFrame."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    lines = spark.sparkContext.textFile(str(tmp / "lines.txt")).map(lambda line: (line,))
    spark.createDataFrame(lines, "line string").write.parquet(str(tmp / "out"))
