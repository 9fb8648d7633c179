"""A description that the user gave."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    spark.sparkContext.setJobDescription("nightly copy")
    people.write.parquet(str(tmp / "out"))
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
