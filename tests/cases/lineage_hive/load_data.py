"""LOAD DATA: the file is the input."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "rows.txt").write_text("1\\n")
    spark.sql("CREATE TABLE loaded (line string) STORED AS TEXTFILE")


def run(spark: SparkSession, tmp: Path) -> None:
    spark.sql("LOAD DATA LOCAL INPATH '%s' INTO TABLE loaded" % (tmp / "rows.txt"))
