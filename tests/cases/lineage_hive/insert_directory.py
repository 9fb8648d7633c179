"""INSERT OVERWRITE DIRECTORY in Hive's way."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE dir_from (id bigint, name string) STORED AS TEXTFILE")
    spark.sql("INSERT INTO dir_from VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql(
        "INSERT OVERWRITE LOCAL DIRECTORY '%s' ROW FORMAT DELIMITED SELECT id FROM dir_from" % (tmp / "out")
    )
