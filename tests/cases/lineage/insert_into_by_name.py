"""INSERT INTO … BY NAME: columns by their names, not their places."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE TABLE t (a long, b string) USING parquet")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT INTO t BY NAME SELECT name AS b, id AS a FROM people")
