"""Arrow batches as the CSV that COPY reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

__all__ = ["csv_chunks"]


def csv_chunks(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[bytes]:
    """A chunk of lines per batch, without a header. Texts are quoted, an empty field without quotes is NULL.

    A NUL, which no text of Postgres can hold, becomes U+FFFD.
    """
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    for batch in batches:
        columns = [_without_nul(batch.column(name)) for name in names]
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.record_batch(columns, names=list(names)), sink, options)
        yield sink.getvalue().to_pybytes()


def _without_nul(column: pa.Array) -> pa.Array:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    return pc.replace_substring(column, "\0", "\ufffd")
