"""A pattern of topics is kept as it is."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    rows = spark.createDataFrame([("k", "v")], "key string, value string")
    for topic in ("pat1",):
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def run(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option(
        "subscribePattern", "pat.*"
    ).load().count()
