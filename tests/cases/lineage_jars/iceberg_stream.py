"""A stream from Iceberg to Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.sql("CREATE TABLE ice.db.stream_in (id BIGINT, name STRING) USING iceberg")
    spark.sql("CREATE TABLE ice.db.stream_out (id BIGINT, name STRING) USING iceberg")
    spark.sql("INSERT INTO ice.db.stream_in VALUES (1, 'a'), (2, 'b')")


def run(spark: SparkSession, tmp: Path) -> None:
    stream = spark.readStream.table("ice.db.stream_in").writeStream.format("iceberg").queryName("ice_copy")
    stream = stream.option("checkpointLocation", str(tmp / "checkpoint"))
    stream.trigger(availableNow=True).toTable("ice.db.stream_out").awaitTermination()
