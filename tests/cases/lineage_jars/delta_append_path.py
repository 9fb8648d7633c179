"""A folder of Delta is appended to, and an earlier version of it is read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp / "out"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.range(3, 5).write.format("delta").mode("append").save(str(tmp / "out"))
    old = spark.read.format("delta").option("versionAsOf", 0).load(str(tmp / "out"))
    old.write.format("delta").mode("append").save(str(tmp / "out"))
