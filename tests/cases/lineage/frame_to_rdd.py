"""DataFrame.rdd to saveAsTextFile: the RDDs know the files."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.rdd.map(lambda row: row.name).saveAsTextFile(str(tmp / "out"))
