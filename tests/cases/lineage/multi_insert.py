"""One statement that writes two tables."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE TABLE young (id long) USING parquet")
    spark.sql("CREATE TABLE old (id long) USING parquet")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(
        "FROM people INSERT INTO young SELECT id WHERE age < 40 INSERT INTO old SELECT id WHERE age >= 40"
    )
