"""Commands that say nothing about data tell nothing."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("SET spark.sql.ansi.enabled").collect()
    spark.sql("SHOW TABLES").collect()
    spark.sql("DESCRIBE people").collect()
    spark.range(9).count()
    spark.sql("EXPLAIN SELECT * FROM people").collect()
