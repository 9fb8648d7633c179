"""A streaming query fails: the batch and the query do."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    def batch(frame: DataFrame, number: int) -> None:
        raise ValueError("broken")

    stream = spark.readStream.schema("id long, name string, age int").parquet(str(tmp / "people"))
    query = stream.writeStream.queryName("broken").foreachBatch(batch)
    query = query.option("checkpointLocation", str(tmp / "checkpoint")).trigger(availableNow=True)
    started = query.start()
    try:
        started.awaitTermination()
    except Exception:
        pass
