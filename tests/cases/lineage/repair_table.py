"""Partitions are looked for."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long, day string) USING parquet PARTITIONED BY (day)")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("MSCK REPAIR TABLE t")
