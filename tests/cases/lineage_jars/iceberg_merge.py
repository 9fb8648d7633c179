"""MERGE into a table of Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.merged (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.merged VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TABLE ice.db.changes (id long, name string) USING iceberg")
    spark.sql("INSERT INTO ice.db.changes VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("""
    MERGE INTO ice.db.merged t USING ice.db.changes s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)
    """)
