"""CREATE TABLE AS SELECT in Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.ctas_source (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.ctas_source VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.ctas USING iceberg AS SELECT id FROM ice.db.ctas_source")
