"""A common table expression, used twice."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.read.parquet(str(tmp / "people")).createOrReplaceTempView("people")


def run(spark: SparkSession, tmp: Path) -> None:
    old = "WITH old AS (SELECT * FROM people WHERE age > 40)"
    spark.sql(f"{old} SELECT a.name, b.name FROM old a JOIN old b ON a.id < b.id").collect()
