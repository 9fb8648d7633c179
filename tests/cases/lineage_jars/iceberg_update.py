"""UPDATE in Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.updated (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.updated VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("UPDATE ice.db.updated SET name = concat(name, '!') WHERE id = 1")
