"""DELETE of some rows of files in Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.deleted (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.deleted VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("DELETE FROM ice.db.deleted WHERE id % 2 = 1")
