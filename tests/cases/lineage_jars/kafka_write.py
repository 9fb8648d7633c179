"""A topic is written."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    rows = spark.range(3).selectExpr("CAST(id AS string) AS value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "written").save()
