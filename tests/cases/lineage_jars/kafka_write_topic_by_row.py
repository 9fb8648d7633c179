"""The topic is a column: the same for all rows, in plain words."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    rows = spark.range(3).selectExpr("CAST(id AS string) AS value", "'by_row' AS topic")
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).save()
