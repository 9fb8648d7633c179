"""Files are streamed to files: the folder that is watched is the input, not each file."""

from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    stream = spark.readStream.schema("id long, name string, age int").parquet(str(tmp / "people"))
    query = (
        stream.where("age > 40")
        .writeStream.queryName("old_people")
        .format("parquet")
        .option("checkpointLocation", str(tmp / "checkpoint"))
    )
    query.trigger(availableNow=True).start(str(tmp / "out")).awaitTermination()
