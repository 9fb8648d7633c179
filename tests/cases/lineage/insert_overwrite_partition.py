"""INSERT OVERWRITE one partition."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))
    spark.sql("CREATE TABLE t (id long, age int) USING parquet PARTITIONED BY (age)")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT OVERWRITE t PARTITION (age = 36) SELECT id FROM people")
