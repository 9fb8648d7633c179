"""Names and types of the columns of the Parquet files that COPY and load jobs read.

The staged files are written again with types that every product reads alike. A column becomes `c0`, `c1`, …:
in the type of its target where every value fits, otherwise as text that the product tries to cast. A column
whose values may not fit is also written as JSON text, `j0`, `j1`, …, for `_unmapped_data`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.destinations.base import RefusedRow
from headwater.destinations.sql.sql_destination import StagedColumn
from headwater.destinations.staged_files import Form, StagedFiles
from headwater.destinations.table import ROW

ROW_NAME = "r"
"""The row number in the files."""

_DECIMAL = pa.decimal128(38, 18)
_LARGE, _SMALL = 1e20, 1e-19
_TIME = "%Y-%m-%d %H:%M:%S"
_BATCH_ROWS = 65_536


class TransferColumn(NamedTuple):
    """A column of the files."""

    column: StagedColumn
    form: Form
    name: str
    json_name: str = ""
    """Name of the column with the JSON text; empty: every value fits."""
    is_cast: bool = False
    """Whether the product casts it from text."""


class TransferFormat(NamedTuple):
    """What the files of a product may contain."""

    time_type: pa.DataType = pa.timestamp("us", "UTC")
    """Arrow type of times."""
    max_text_bytes: int | None = None
    """Size of the longest text; rows with a longer one are refused."""
    allows_nul: bool = True


def write_transfer_file(
    path: Path, staged: StagedFiles, columns: Sequence[TransferColumn], format: TransferFormat
) -> list[RefusedRow]:
    """Write the rows to one file, or none if there are no rows; return those that the product cannot hold."""
    refused: dict[int, RefusedRow] = {}
    names = [ROW_NAME, *(each.name for each in columns)]
    names += [each.json_name for each in columns if each.json_name]
    writer = None
    try:
        for table in _transfer_tables(staged.batches(_BATCH_ROWS), columns, format, refused):
            rows = table.select(names)
            if rows.num_rows and writer is None:
                writer = pq.ParquetWriter(path, rows.schema, compression="snappy")
            if writer is not None:
                writer.write_table(rows)
    finally:
        if writer is not None:
            writer.close()
    return list(refused.values())


def _transfer_tables(
    batches: Iterator[pa.RecordBatch],
    columns: Sequence[TransferColumn],
    format: TransferFormat,
    refused: dict[int, RefusedRow],
) -> Iterator[pa.Table]:
    limit = format.max_text_bytes
    for batch in batches:
        rows = batch.column(batch.schema.get_field_index(ROW))
        made: dict[str, Any] = {ROW_NAME: rows}
        fits = None
        for each in columns:
            value = batch.column(batch.schema.get_field_index(each.column.name))
            made[each.name] = _as_form(value, each.form, format.time_type)
            if each.json_name:
                made[each.json_name] = _json(value)
            if each.form is not Form.TEXT:
                continue
            if not format.allows_nul:
                made[each.name] = pc.replace_substring(made[each.name], "\0", "\ufffd")
            for name in filter(None, (each.name, each.json_name)):
                if limit is None:
                    continue
                short = pc.fill_null(pc.less_equal(pc.binary_length(made[name]), limit), True)
                if pc.all(short).as_py() is not False:
                    continue
                fits = short if fits is None else pc.and_(fits, short)
                reason = f"the text of {each.column.name!r} has more than {limit} bytes."
                for row in rows.filter(pc.invert(short)).to_pylist():
                    refused.setdefault(row, RefusedRow(row, reason))
        table = pa.table(made)
        yield table if fits is None else table.filter(fits)


def _as_form(value: pa.Array, form: Form, time_type: pa.DataType) -> pa.Array:
    if form is Form.DECIMAL:
        return _decimal(value)
    if form is Form.TIME:
        return value.cast(pa.timestamp("us", "UTC")).cast(time_type)
    return _text(value) if form is Form.TEXT else value


def _text(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        # Arrow's %S has the fraction too, with the digits of the unit
        return pc.strftime(value.cast(pa.timestamp("us")), _TIME)
    return value.cast(pa.string())


def _decimal(value: pa.Array) -> pa.Array:
    """The decimal of the shortest text: 19.99, and not 19.989999999999998437."""
    size = pc.abs(value)
    fits = pc.and_(pc.is_finite(value), pc.less(size, _LARGE))
    value = pc.if_else(fits, value, None)
    value = pc.if_else(pc.less(size, _SMALL), 0.0, value)
    wide = value.cast(pa.string()).cast(pa.decimal256(76, 40))
    return pc.round(wide, 18).cast(_DECIMAL)


def _json(value: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(value.type) or pa.types.is_boolean(value.type)):
        plain = (value if pa.types.is_floating(value.type) else _text(value)).to_pylist()
        value = pa.array([_encoded(each) for each in plain], pa.string())
    return value.cast(pa.string())


def _encoded(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        value = str(value)  # JSON has no such numbers
    return msgspec.json.encode(value).decode()
