"""writeTo(…).overwritePartitions."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.from_here (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.from_here VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TABLE ice.db.over (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.over VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.table("ice.db.from_here").writeTo("ice.db.over").overwritePartitions()
