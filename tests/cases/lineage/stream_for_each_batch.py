"""foreachBatch: what it writes belongs to the micro-batch, and comes from the stream's source."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    def batch(frame: DataFrame, number: int) -> None:
        frame.select("name").write.mode("append").parquet(str(tmp / "names"))
        frame.select("age").write.mode("append").parquet(str(tmp / "ages"))

    stream = spark.readStream.schema("id long, name string, age int").parquet(str(tmp / "people"))
    query = stream.writeStream.queryName("batches").foreachBatch(batch)
    query = query.option("checkpointLocation", str(tmp / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
