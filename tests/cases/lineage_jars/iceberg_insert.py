"""Rows into a table of Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.source (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.source VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TABLE ice.db.target (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.target VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO ice.db.target SELECT id, upper(name) FROM ice.db.source")
