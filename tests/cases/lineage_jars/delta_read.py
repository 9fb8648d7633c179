"""A folder of Delta is read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.read.format("delta").load(str(tmp / "in")).write.parquet(str(tmp / "out"))
