"""One partition's folder is read: the dataset is the whole, the folder its subset."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.read.parquet(str(tmp / "orders")).write.partitionBy("day").parquet(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.parquet(str(tmp / "in" / "day=2026-01-01")).write.csv(str(tmp / "out"))
