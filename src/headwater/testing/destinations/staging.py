"""Staged Parquet files as the pipeline writes them, from plain rows: for people who test a destination."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.destinations.base import Load
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, Table

ARROW = {
    Kind.BOOL: pa.bool_(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.JSON: pa.string(),
}


def staged_load(
    folder: Path,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    id: str | None = None,
    kinds: Mapping[str, Kind] | None = None,
    order: Sequence[int] | None = None,
    first_row: int = 0,
    files: int = 1,
) -> Load:
    """A load of these rows; its files have the columns of `kinds`, else those of the table that a row has.

    `order` gives each row its `_headwater_row`, where it is not its place.
    """
    id = id or uuid.uuid4().hex
    if kinds is None:
        kinds = {
            name: column.kind for name, column in table.columns.items() if any(name in row for row in rows)
        }
    numbers = [first_row + number for number in (order or range(len(rows)))]
    data = {name: pa.array([row.get(name) for row in rows], ARROW[kind]) for name, kind in kinds.items()}
    staged = pa.table({**data, ROW: pa.array(numbers, pa.int64())})
    paths, size = [], -(-len(rows) // files)
    for part in range(files):
        path = folder / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(staged.slice(part * size, size), path)
        paths.append(str(path))
    return Load(id=id, table=table, files=paths, rows=len(rows))
