"""A query of a database is read: its tables are the inputs."""

from pathlib import Path

from pyspark.sql import SparkSession

NEEDS = "sqlglot"
URL = "jdbc:derby:memory:jdbc_query;create=true"


def setup(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    people.write.jdbc(URL, "people")


def run(spark: SparkSession, tmp: Path) -> None:
    query = 'SELECT "name" FROM people WHERE "age" > 40'
    spark.read.format("jdbc").option("url", URL).option("query", query).load().collect()
