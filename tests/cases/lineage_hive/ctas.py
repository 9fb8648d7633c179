"""CREATE TABLE AS SELECT in Hive."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ctas_from (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO ctas_from VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE hive_ctas STORED AS TEXTFILE AS SELECT id FROM ctas_from")
