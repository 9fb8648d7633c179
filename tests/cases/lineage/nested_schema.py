"""Structs, arrays and maps in the schema."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.selectExpr(
        "named_struct('id', id, 'names', array(name)) AS s", "map(name, age) AS m"
    ).write.parquet(str(tmp / "out"))
