"""Two topics are two datasets."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    rows = spark.createDataFrame([("k", "v")], "key string, value string")
    for topic in (
        "one",
        "two",
    ):
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def run(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option(
        "subscribe", "one,two"
    ).load().selectExpr("CAST(value AS string)").write.text(str(tmp / "out"))
