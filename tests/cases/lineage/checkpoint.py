"""After a checkpoint in files the source is the first one, not the files."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sparkContext.setCheckpointDir(str(tmp / "checkpoints"))
    people = spark.read.parquet(str(tmp / "people"))
    kept = people.checkpoint()
    kept.select("name").write.parquet(str(tmp / "out"))
