"""How the columns of a load travel to a product that reads Parquet files itself.

The files are written anew, with names and types that every product reads the same way: `c0`, `c1`, … for the
columns, in the column's own type where that is certain to fit, else as text that the product tries to cast.
What may not fit travels once more as `j0`, …, the JSON of the value as it was: so that it can go to
`_unmapped_data` without a product's own idea of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.destinations.base import RefusedRow
from headwater.destinations.table import ROW, Column

__all__ = ["DECIMAL", "ROW_SLOT", "Carried", "Form", "carried_batches", "staging_form"]

DECIMAL = pa.decimal128(38, 18)
ROW_SLOT = "r"
_LARGE, _SMALL = 1e20, 1e-19
_TIME = "%Y-%m-%d %H:%M:%S"


class Form(StrEnum):
    """As what a column travels."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIME = "time"
    DECIMAL = "decimal"
    """A double for a numeric(38,18): with the digits that it is written with, or NULL if it is too large."""


class Carried(NamedTuple):
    """A column on its way."""

    name: str
    target: Column
    form: Form
    slot: str
    json_slot: str = ""
    """Where its JSON travels; empty: it is certain to fit."""
    cast: str = ""
    """SQL type that it is cast to before that of its column."""
    tried: bool = False
    """Whether the product must try to cast it from text."""


def staging_form(type: pa.DataType) -> Form:
    """The form that is the staged type's own."""
    if pa.types.is_timestamp(type):
        return Form.TIME
    if pa.types.is_decimal(type):
        return Form.DECIMAL
    own = {pa.int64(): Form.INTEGER, pa.float64(): Form.FLOAT, pa.bool_(): Form.BOOLEAN}
    return own.get(type, Form.TEXT)


def carried_batches(
    batches: Iterator[pa.RecordBatch],
    columns: list[Carried],
    *,
    time_type: pa.DataType,
    max_text_bytes: int | None,
    keeps_nul: bool,
    refused: list[RefusedRow],
) -> Iterator[pa.Table]:
    """The rows as they travel. Those with a text that no column can hold are left out, and in `refused`."""
    for batch in batches:
        rows = batch.column(batch.schema.get_field_index(ROW))
        made: dict[str, Any] = {ROW_SLOT: rows}
        fits = None
        for column in columns:
            value = batch.column(batch.schema.get_field_index(column.name))
            made[column.slot] = _as_form(value, column.form, time_type)
            if column.json_slot:
                made[column.json_slot] = _json(value)
            if column.form is not Form.TEXT:
                continue
            if not keeps_nul:
                made[column.slot] = pc.replace_substring(made[column.slot], "\0", "\ufffd")
            for slot in filter(None, (column.slot, column.json_slot)):
                if max_text_bytes is None:
                    continue
                short = pc.fill_null(pc.less_equal(pc.binary_length(made[slot]), max_text_bytes), True)
                if pc.all(short).as_py() is not False:
                    continue
                fits = short if fits is None else pc.and_(fits, short)
                for row in rows.filter(pc.invert(short)).to_pylist():
                    reason = f"the text of {column.name!r} has more than {max_text_bytes} bytes."
                    if row not in {each.row for each in refused}:
                        refused.append(RefusedRow(row, reason))
        table = pa.table(made)
        yield table if fits is None else table.filter(fits)


def _as_form(value: pa.Array, form: Form, time_type: pa.DataType) -> pa.Array:
    if form is Form.DECIMAL and pa.types.is_floating(value.type):
        return _decimal(value)
    if form is Form.TIME:
        moment = value.cast(pa.timestamp("us", "UTC"))
        return moment.cast(time_type)
    return _text(value) if form is Form.TEXT else value


def _text(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        # whole seconds and the rest: Arrow writes exactly the digits that the unit has
        return pc.strftime(value.cast(pa.timestamp("us")), _TIME)
    return value.cast(pa.string())


def _decimal(value: pa.Array) -> pa.Array:
    """By way of text, so that 19.99 is not 19.989999999999998437."""
    size = pc.abs(value)
    fits = pc.and_(pc.is_finite(value), pc.less(size, _LARGE))
    value = pc.if_else(fits, value, None)
    value = pc.if_else(pc.less(size, _SMALL), 0.0, value)
    wide = value.cast(pa.string()).cast(pa.decimal256(76, 40))
    return pc.round(wide, 18).cast(DECIMAL)


def _json(value: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(value.type) or pa.types.is_boolean(value.type)):
        value = pa.array([_encoded(each) for each in _plain(value)], pa.string())
    return value.cast(pa.string())


def _plain(value: pa.Array) -> list[Any]:
    return (value if pa.types.is_floating(value.type) else _text(value)).to_pylist()  # type: ignore[no-any-return]


def _encoded(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        value = str(value)  # JSON has no word for it
    return msgspec.json.encode(value).decode()
