"""A report on the shop's tables: a PySpark script that `headwater lineage run` runs.

    headwater lineage run report_job.py warehouse.duckdb order_2026 report-folder
    headwater lineage run report_job.py lake order_2026 report-folder

Spark cannot read DuckDB files, nor Delta without its connector, so the script has its own data sources. Their
`get_inputs` names the table that they read, and in the lake its version, so that lineage connects the report
with the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.lineage.extend import InputDatasetWithIdentifier
from headwater.lineage.facets.dataset import version
from headwater.pipeline.spark.session import start
from headwater.settings import PipelineSettings


class DuckDbReader(DataSourceReader):
    """All rows of one table."""

    def __init__(self, path: str, table: str) -> None:
        self.path, self.table = path, table

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with duckdb.connect(self.path, read_only=True) as database:
            yield from database.table(self.table).to_arrow_reader()


class DuckDbTable(DataSource):
    """`spark.read.format("duckdb_table").option("database", path).option("table", name).load()`."""

    @classmethod
    def name(cls) -> str:
        return "duckdb_table"

    @property
    def _location(self) -> tuple[str, str]:
        return str(Path(self.options["database"]).resolve()), self.options["table"]

    def schema(self) -> StructType:
        path, table = self._location
        with duckdb.connect(path, read_only=True) as database:
            return from_arrow_schema(database.table(table).limit(0).to_arrow_table().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return DuckDbReader(*self._location)

    def get_inputs(self, context: Any) -> list[InputDatasetWithIdentifier]:
        path, table = self._location
        return [InputDatasetWithIdentifier(f"duckdb://{path}", f"main.{table}")]


class DeltaReader(DataSourceReader):
    """All rows of one version of a table."""

    def __init__(self, path: str, version: int) -> None:
        self.path, self.version = path, version

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from deltalake import DeltaTable

        yield from DeltaTable(self.path, version=self.version).to_pyarrow_table().to_batches()


class DeltaLakeTable(DataSource):
    """`spark.read.format("delta_table").option("path", path).load()`: the newest version."""

    @classmethod
    def name(cls) -> str:
        return "delta_table"

    def __init__(self, options: dict[str, str]) -> None:
        from deltalake import DeltaTable

        super().__init__(options)
        self._version = DeltaTable(options["path"]).version()

    def schema(self) -> StructType:
        from deltalake import DeltaTable

        return from_arrow_schema(pa.schema(DeltaTable(self.options["path"]).schema().to_arrow()))

    def reader(self, schema: StructType) -> DataSourceReader:
        return DeltaReader(self.options["path"], self._version)

    def get_inputs(self, context: Any) -> list[InputDatasetWithIdentifier]:
        facets = {"version": version(str(self._version))}
        return [InputDatasetWithIdentifier("file", self.options["path"], facets=facets)]


def orders_in(spark: SparkSession, place: str, table: str) -> DataFrame:
    """A table of the demo: in a database of DuckDB, or in a folder of Delta tables."""
    if Path(place).is_dir():
        spark.dataSource.register(DeltaLakeTable)
        path = str(Path(place).resolve() / table)
        return spark.read.format("delta_table").option("path", path).load()
    spark.dataSource.register(DuckDbTable)
    return spark.read.format("duckdb_table").option("database", place).option("table", table).load()


def main(place: str, table: str, target: str) -> None:
    """Revenue of each city, as Parquet."""
    spark = start(
        PipelineSettings(), log_file=Path(target).parent / "report.spark.log", app_name="shop report"
    )
    (
        orders_in(spark, place, table)
        .where("amount is not null")
        .groupBy(f.upper("customer_address_city").alias("city"))
        .agg(f.sum("amount").alias("revenue"), f.count("*").alias("orders"))
        .write.mode("overwrite")
        .parquet(target)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
