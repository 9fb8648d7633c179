"""Rows from one Hive table into another."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE insert_from (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO insert_from VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TABLE inserted (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO inserted VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO inserted SELECT id, upper(name) FROM insert_from")
