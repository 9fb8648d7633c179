"""Buckets and partitions."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.partitionBy("age").bucketBy(2, "id").saveAsTable("t")
