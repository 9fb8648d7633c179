"""A data source written in Python that says nothing of itself."""

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (2,)
        yield (3,)


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> Reader:
        return Reader()


def run(spark: SparkSession, tmp: Path) -> None:
    spark.dataSource.register(Numbers)
    spark.read.format("numbers").option("table", "primes").load().write.parquet(str(tmp / "out"))
