"""A Hive table is dropped."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE dropped (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO dropped VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("DROP TABLE dropped")
