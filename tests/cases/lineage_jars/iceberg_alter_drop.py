"""A column more, then no table."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.changed (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.changed VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("ALTER TABLE ice.db.changed ADD COLUMN more int")
    spark.sql("DROP TABLE ice.db.changed")
