"""The Parquet files of a load."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.destinations.table import ROW
from headwater.errors import StagedFilesUnusable


class Form(StrEnum):
    """The type of a staged column, whose SQL name each product has."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIME = "time"
    DECIMAL = "decimal"
    """A double on its way to a numeric(38,18): the digits of its shortest text; NULL if it is too large."""


_FORMS = {pa.int64(): Form.INTEGER, pa.float64(): Form.FLOAT, pa.bool_(): Form.BOOLEAN}


def form_of(type: pa.DataType) -> Form:
    """The form of a staged type."""
    return Form.TIME if pa.types.is_timestamp(type) else _FORMS.get(type, Form.TEXT)


def has_nul(column: pa.Array) -> bool:
    """Whether a text of the column has a NUL."""
    text = column.buffers()[2]
    if text is None or b"\0" not in text.to_pybytes():
        return False  # by far the cheaper question
    return bool(pc.any(pc.match_substring(column, "\0")).as_py())


class StagedFiles:
    """Schema and batches of the files. Only footers are read until rows are requested (G8)."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        self.types: dict[str, pa.DataType] = {}
        self.rows = 0
        for file in self.files:
            with self._open(file) as parquet:
                found = {field.name: field.type for field in parquet.schema_arrow}
                self.rows += parquet.metadata.num_rows
            if self.types and found != self.types:
                raise StagedFilesUnusable(
                    f"the staged files of one load have different columns: {file} differs."
                )
            self.types = found
        if self.files and self.types.get(ROW) != pa.int64():
            raise StagedFilesUnusable(f"the staged files have no int64 column {ROW}.")

    @property
    def columns(self) -> list[str]:
        """Names of the columns to store: all except the row number."""
        return [name for name in self.types if name != ROW]

    def batches(self, rows: int = 8_192) -> Iterator[pa.RecordBatch]:
        """All rows in order, at most `rows` in a batch."""
        for file in self.files:
            with self._open(file) as parquet:
                yield from parquet.iter_batches(rows)

    def row_ids(self) -> Sequence[int]:
        """`_headwater_row` of every row, sorted. Uses eight bytes for each row."""
        ids = array("q")
        for file in self.files:
            with self._open(file) as parquet:
                for batch in parquet.iter_batches(columns=[ROW]):
                    ids.extend(batch.column(0).to_pylist())
        sorted_ids = pa.array(memoryview(ids), pa.int64()).sort()
        return array("q", sorted_ids.buffers()[1].to_pybytes()[: 8 * len(ids)])

    def within(self, column: str, limit: float) -> bool:
        """Whether the footers prove that no number of the column is as large as `limit`."""
        for file in self.files:
            with self._open(file) as parquet:
                metadata = parquet.metadata
                index = parquet.schema_arrow.names.index(column)
                for group in range(metadata.num_row_groups):
                    chunk = metadata.row_group(group).column(index)
                    found = chunk.statistics
                    if found is None or not found.has_min_max:
                        return bool(found is not None and found.null_count == chunk.num_values)
                    if not (-limit < found.min and found.max < limit):
                        return False
        return True

    def texts_with_nul(self) -> set[str]:
        """The columns of text in which a value has a NUL, which some products cannot store."""
        texts = [name for name, type in self.types.items() if pa.types.is_string(type)]
        return (
            {name for batch in self.batches() for name in texts if has_nul(batch.column(name))}
            if texts
            else set()
        )

    def check(self) -> None:
        """Reads everything; StagedFilesUnusable if that fails.

        A product that reads the files itself may call a damaged one a bad value.
        """
        for _ in self.batches():
            pass

    @staticmethod
    @contextmanager
    def _open(file: str) -> Iterator[pq.ParquetFile]:
        try:
            # Spark's old timestamps are nanoseconds to Arrow, whose years end in 2262
            with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
                yield parquet
        except (OSError, pa.ArrowInvalid) as error:
            raise StagedFilesUnusable(
                f"the staged file {file} cannot be read: {error}.",
                hint="It is staged again: the load is repeated.",
            ) from error
