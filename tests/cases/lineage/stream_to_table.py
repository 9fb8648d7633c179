"""A stream into a table."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    stream = spark.readStream.schema("id long, name string, age int").parquet(str(tmp / "people"))
    query = stream.writeStream.queryName("to_table").option("checkpointLocation", str(tmp / "checkpoint"))
    query.trigger(availableNow=True).toTable("t").awaitTermination()
