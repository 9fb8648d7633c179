"""UPDATE in Delta."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(
        str(tmp / "target")
    )


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(f"UPDATE delta.`{tmp}/target` SET name = 'x' WHERE id = 1")
