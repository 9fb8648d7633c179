"""ALTER TABLE … RENAME TO is told, whether or not the catalog takes it."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.old_name (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.old_name VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    try:
        spark.sql("ALTER TABLE ice.db.old_name RENAME TO ice.db.new_name")
    except Exception:
        pass
