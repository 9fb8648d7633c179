"""A data sink written in Python."""

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Sink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "sink"

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer()


def run(spark: SparkSession, tmp: Path) -> None:
    people = spark.read.parquet(str(tmp / "people"))
    spark.dataSource.register(Sink)
    people.write.format("sink").mode("append").option("url", "https://user:secret@host/inbox?token=x").save()
