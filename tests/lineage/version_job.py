"""A short job for any release of Spark: prints its lineage events as JSON lines, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from openlineage.client.serde import Serde
from openlineage.client.transport import Transport
from pyspark.sql import DataFrame, SparkSession

import headwater.lineage


class Printing(Transport):
    """Events to standard output."""

    kind = "printing"

    def emit(self, event: object) -> None:
        print(json.dumps(Serde.to_dict(event)), flush=True)


def main(folder: str) -> None:
    """A write, a table, a failure, an RDD, a stream."""
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("version")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    headwater.lineage.install(spark, transport=Printing(), deadline_millis=120_000, exit_millis=200_000)

    spark.range(10).selectExpr("id", "id % 3 AS k").write.parquet(f"{folder}/out")
    spark.read.parquet(f"{folder}/out").groupBy("k").count().write.saveAsTable("saved")
    for statement in ("SELECT nope FROM saved", "SELECT raise_error('broken') FROM saved"):
        try:
            spark.sql(statement).collect()
        except Exception:
            pass
    Path(folder, "lines.txt").write_text("a\nb\n")
    spark.sparkContext.textFile(f"{folder}/lines.txt").map(len).saveAsTextFile(f"{folder}/lengths")

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(f"{folder}/streamed")

    stream = spark.readStream.schema("id long, k long").parquet(f"{folder}/out").writeStream
    query = stream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
