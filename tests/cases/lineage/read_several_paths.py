"""Three folders of two datasets, two of which are partitions of one."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.read.parquet(str(tmp / "orders")).write.partitionBy("day").parquet(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    folder = tmp / "in"
    paths = [str(folder / "day=2026-01-01"), str(folder / "day=2026-01-02"), str(tmp / "orders")]
    spark.read.parquet(*paths).select("id").write.csv(str(tmp / "out"))
