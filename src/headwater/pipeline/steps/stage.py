"""The stage step: rows as Parquet files, on their way to a destination."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from headwater.destinations.table import ROW, UNMAPPED
from headwater.pipeline.spark.storage import ObjectFolder, Staging, write_objects
from headwater.pipeline.steps.read_lines import file_and_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# For most columns Spark builds a dictionary and discards it: without dictionaries writing a million events of
# 45 columns takes 6-10 CPU seconds instead of 25-30, and DuckDB loads the files as fast. Sizes, checksums and
# the extremes of texts are omitted because no destination reads them.
PARQUET = {
    "parquet.enable.dictionary": "false",
    "parquet.size.statistics.enabled": "false",
    "parquet.page.write-checksum.enabled": "false",
    "compression": "snappy",
}


class StagedRows(NamedTuple):
    """Parquet files of rows, in their order; the number of rows and of values in `_unmapped_data`."""

    files: list[str]
    rows: int
    unmapped: int


class Stager(Protocol):
    """Writes the rows of a batch as Parquet."""

    is_for_many: bool
    """Whether it writes many rows, so that a second pass over their lines would be noticed."""

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        """The staged rows of each part of the batch that has rows; a batch of one origin is part 0."""


class DriverStager:
    """Few rows: the driver writes them.

    Spark's own writer takes a tenth of a second for a single row: a committer, and a task with a codec.
    """

    is_for_many = False

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        return {0: write_table(rows.toArrow(), folder / "rows.parquet")}


class SparkStager:
    """Many rows: the executors write them."""

    is_for_many = True

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        shared = self._staging.executor_folder(folder)
        if isinstance(shared, ObjectFolder):
            files = shared.download(write_objects(rows, shared), folder)
        else:
            target = folder / "rows"
            rows.write.options(**PARQUET, **_without_extremes(rows)).parquet(str(target))
            files = sorted(str(path) for path in target.glob("part-*.parquet"))
        unmapped = sum(map(_count_in_file, files)) if UNMAPPED in rows.columns else 0
        return {0: StagedRows(files, sum(map(_rows_in_file, files)), unmapped)}


class SharedStager:
    """Rows of several small files: one Spark job for all, since a job costs more than such a file.

    Each file is a part, with rows numbered as if it had been read alone. So it does not matter which files
    were staged together, before a crash or after it (G5).
    """

    is_for_many = False

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        return {
            number: write_table(own, folder / f"rows-{number}.parquet")
            for number, own in _by_file(rows.toArrow()).items()
        }


def write_table(rows: pa.Table, path: Path) -> StagedRows:
    """Writes an Arrow table as one Parquet file."""
    import pyarrow.parquet as pq

    pq.write_table(rows, path, use_dictionary=False, compression="snappy")
    return StagedRows(
        [str(path)], rows.num_rows, _count_unmapped(rows) if UNMAPPED in rows.column_names else 0
    )


def _by_file(table: pa.Table) -> dict[int, pa.Table]:
    """The rows of each file, in their order, numbered as if it had been read alone."""
    import pyarrow as pa

    table = table.sort_by(ROW)
    column = table.schema.get_field_index(ROW)
    numbers = [file_and_line(row) for row in table.column(column).to_pylist()]
    table = table.set_column(column, ROW, pa.array([line for _, line in numbers], pa.int64()))
    first: dict[int, int] = {}
    for index, (file, _) in enumerate(numbers):
        first.setdefault(file, index)
    ends = [*list(first.values())[1:], len(numbers)]
    return {file: table.slice(at, end - at) for (file, at), end in zip(first.items(), ends, strict=True)}


def _without_extremes(rows: DataFrame) -> dict[str, str]:
    """Options that keep least and greatest values for numbers only; destinations read those."""
    texts = (field.name for field in rows.schema if field.dataType.simpleString() == "string")
    return {f"parquet.column.statistics.enabled#{name}": "false" for name in texts}


def _count_unmapped(rows: pa.Table) -> int:
    texts = rows.column(UNMAPPED).drop_null().to_pylist()
    return sum(len(msgspec.json.decode(text, type=dict[str, msgspec.Raw])) for text in texts)


def _rows_in_file(file: str) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def _count_in_file(file: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        batches = parquet.iter_batches(columns=[UNMAPPED])
        return sum(_count_unmapped(pa.Table.from_batches([batch])) for batch in batches)
