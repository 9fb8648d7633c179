"""A Hive table is read."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE hive_read (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO hive_read VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.table("hive_read").write.parquet(str(tmp / "out"))
