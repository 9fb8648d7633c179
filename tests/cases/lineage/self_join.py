"""One input, read twice."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    other = spark.read.parquet(str(tmp / "people")).toDF("id2", "name2", "age2")
    people.join(other, people.age < other.age2).select("name", "name2").write.parquet(str(tmp / "out"))
