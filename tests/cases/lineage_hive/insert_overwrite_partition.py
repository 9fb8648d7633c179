"""A partition of a Hive table is replaced."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE part_from (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO part_from VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TABLE parts (id bigint) PARTITIONED BY (day string) STORED AS TEXTFILE")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("INSERT OVERWRITE TABLE parts PARTITION (day) SELECT id, '2026-01-01' FROM part_from")
