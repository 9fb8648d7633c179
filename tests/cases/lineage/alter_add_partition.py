"""A partition is added."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE t (id long, day string) USING parquet PARTITIONED BY (day)")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("ALTER TABLE t ADD PARTITION (day = '2026-01-01')")
