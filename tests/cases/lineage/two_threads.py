"""Two queries at once, each its own run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))

    def write(name: str) -> None:
        people.select("id").write.parquet(str(tmp / name))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ["a", "b"]))
