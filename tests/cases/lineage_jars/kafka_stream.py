"""From topic to topic."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    rows = spark.createDataFrame([("k", "v")], "key string, value string")
    for topic in ("from",):
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def run(spark: SparkSession, tmp: Path) -> None:
    servers = (tmp / "bootstrap").read_text()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "from")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "to")
        .queryName("copy")
    )
    query = query.option("checkpointLocation", str(tmp / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
