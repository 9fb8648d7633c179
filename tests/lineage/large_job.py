"""A job whose plan holds all of its data: so many MiB of text as one LocalRelation, written to Parquet.

    python -m tests.lineage.large_job FOLDER MEBIBYTES

A session of its own, for its heap must hold the data several times: as Arrow, as Spark's rows, in the task.
"""

from __future__ import annotations

import sys

import pandas  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

import headwater.lineage


def main(folder: str, mebibytes: int) -> None:
    """Lineage goes to FOLDER/events.jsonl, rows to FOLDER/out."""
    spark = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("Large")
        .config("spark.driver.memory", "10g")
        .config("spark.driver.maxResultSize", "0")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.rpc.message.maxSize", "2047")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.execution.arrow.localRelationThreshold", f"{2 * mebibytes}m")
        .config("spark.openlineage.transport.type", "file")
        .config("spark.openlineage.transport.location", f"{folder}/events.jsonl")
        .config("spark.openlineage.headwater.deadlineMillis", "600000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    headwater.lineage.install(spark)
    frame = pandas.DataFrame({"text": ["x" * 1024] * (mebibytes * 1024)})
    spark.createDataFrame(frame).write.parquet(f"{folder}/out")
    headwater.lineage.flush(600)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
