"""A DataFrame goes through an RDD and comes back."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    rows = people.rdd.map(lambda row: (row.name,))
    spark.createDataFrame(rows, "name string").write.parquet(str(tmp / "out"))
