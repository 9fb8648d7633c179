"""INSERT OVERWRITE a table."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE TABLE t (a long, b string) USING parquet")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT OVERWRITE t SELECT id, name FROM people")
