"""CACHE TABLE … AS SELECT."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE people USING parquet AS SELECT * FROM parquet.`%s`" % (tmp / "people"))


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CACHE TABLE old AS SELECT * FROM people WHERE age > 40")
    spark.sql("SELECT name FROM old").write.parquet(str(tmp / "out"))
