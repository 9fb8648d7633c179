"""A Hive table is created."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE created (id bigint COMMENT 'key') STORED AS PARQUET")
