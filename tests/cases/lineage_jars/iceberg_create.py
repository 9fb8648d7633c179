"""A table of Iceberg is created."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.created (id long, name string) USING iceberg")
