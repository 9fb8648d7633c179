"""A source of numbers, a sink in memory."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = stream.writeStream.format("memory").queryName("numbers").trigger(once=True).start()
    query.awaitTermination()
