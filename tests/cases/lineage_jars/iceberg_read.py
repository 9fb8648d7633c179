"""A table of Iceberg is read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.read (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.read VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.table("ice.db.read").write.parquet(str(tmp / "out"))
