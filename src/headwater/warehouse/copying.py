"""Arrow batches as the CSV that COPY reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

__all__ = ["csv_chunks"]


def csv_chunks(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[bytes]:
    """A chunk of lines per batch, without a header. Texts are quoted, an empty field without quotes is NULL.

    A NUL, which no text of Postgres can hold, becomes U+FFFD; times are UTC and do not say so.
    """
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    for batch in batches:
        columns = [_writable(batch.column(name)) for name in names]
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.record_batch(columns, names=list(names)), sink, options)
        yield sink.getvalue().to_pybytes()


def _writable(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return column.cast(pa.timestamp(column.type.unit))  # with a zone it takes ten times as long
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = column.buffers()[2]
        if text is not None and b"\0" in text.to_pybytes():
            return pc.replace_substring(column, "\0", "\ufffd")
    return column
