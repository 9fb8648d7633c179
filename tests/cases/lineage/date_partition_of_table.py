"""A partitioned table is one dataset, whichever partition is written."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE TABLE t (id long, day string) USING parquet PARTITIONED BY (day)")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO t PARTITION (day = '2026-01-01') SELECT id FROM people")
