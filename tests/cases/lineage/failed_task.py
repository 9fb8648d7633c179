"""A task fails: FAIL, with the datasets that were to be read and written."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    try:
        people.selectExpr("id", "raise_error('broken') AS x").write.parquet(str(tmp / "out"))
    except Exception:
        pass
