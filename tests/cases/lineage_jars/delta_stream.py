"""A stream from Delta to Delta."""

from pathlib import Path

from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    spark.range(3).selectExpr("id", "CAST(id AS string) AS name").write.format("delta").save(str(tmp / "in"))


def run(spark: SparkSession, tmp: Path) -> None:
    stream = spark.readStream.format("delta").load(str(tmp / "in"))
    query = (
        stream.writeStream.format("delta")
        .queryName("delta_copy")
        .option("checkpointLocation", str(tmp / "checkpoint"))
    )
    query.trigger(availableNow=True).start(str(tmp / "out")).awaitTermination()
