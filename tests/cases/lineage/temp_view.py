"""A temporary view is only a name: nothing is told until it is used."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.createOrReplaceTempView("p")
    spark.sql("SELECT name FROM p").write.parquet(str(tmp / "out"))
