"""newAPIHadoopFile to saveAsNewAPIHadoopFile."""

from pathlib import Path

from pyspark import RDD
from pyspark.sql import SparkSession


def setup(spark: SparkSession, tmp: Path) -> None:
    (tmp / "lines.txt").write_text("a\nb\n")


def run(spark: SparkSession, tmp: Path) -> None:
    lib = "org.apache.hadoop.mapreduce.lib"
    io = "org.apache.hadoop.io"
    lines: RDD[tuple[int, str]] = spark.sparkContext.newAPIHadoopFile(
        str(tmp / "lines.txt"), f"{lib}.input.TextInputFormat", f"{io}.LongWritable", f"{io}.Text"
    )
    lines.map(lambda pair: (pair[1], 1)).saveAsNewAPIHadoopFile(
        str(tmp / "out"), f"{lib}.output.SequenceFileOutputFormat", f"{io}.Text", f"{io}.IntWritable"
    )
