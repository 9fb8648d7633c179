"""MERGE into a folder of Delta."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(
        str(tmp / "target")
    )
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(
        str(tmp / "changes")
    )


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(f"""
    MERGE INTO delta.`{tmp}/target` t USING delta.`{tmp}/changes` s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)
    """)
