"""A DataFrame is written to a database."""

from pathlib import Path

from pyspark.sql import SparkSession

URL = "jdbc:derby:memory:jdbc_write;create=true"


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.format("jdbc").option("url", URL).option("dbtable", "people").save()
