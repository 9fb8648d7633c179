"""Rows become data files of an Iceberg table: new files for new rows, and copies of files whose rows change.

pyiceberg can neither write a stream of rows into partitions nor keep the stored value where a new row has
NULL; so the files are made here, by its writer, and committed by the caller.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headwater.destinations.lake.rows import Dialect
from headwater.destinations.table import ROW

logger = logging.getLogger(__name__)

_PREDICATES: Any = expressions  # names of columns are accepted, and not in the annotations
_CHUNK_BYTES = 128 * 1024 * 1024
_MOST_LITERALS = 200  # Iceberg compares no more with the bounds of a file
_PRUNES = {"VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "DATE"}


def added_files(table: Table, rows: pa.RecordBatchReader) -> list[DataFile]:
    """The rows as files of the table, which no snapshot has yet; a part of them in memory at a time (G8)."""
    files: list[DataFile] = []
    try:
        for chunk in _chunks(rows):
            files += _dataframe_to_data_files(table.metadata, chunk, table.io)
    except BaseException:
        remove_files(table, files)
        raise
    return files


def merged_files(
    table: Table, rows: pa.RecordBatchReader, key: Sequence[str]
) -> tuple[list[DataFile], list[DataFile]]:
    """Files with the rows laid over the table's by their key, and the files that these replace.

    A file is copied if a key is in it; NULL in a new row keeps the stored value.
    """
    fresh: list[DataFile] = []
    replaced: list[DataFile] = []
    with duckdb.connect(config={"temp_directory": tempfile.gettempdir()}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        merge = _Merge(connection, rows, key)
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        try:
            for task in table.scan(row_filter=merge.filter()).plan_files():
                batches = [batch for batch in scan.to_record_batches([task]) if batch.num_rows]
                if batches and (laid_over := merge.over(pa.Table.from_batches(batches))) is not None:
                    fresh += added_files(table, laid_over)
                    replaced.append(task.file)
            fresh += added_files(table, merge.rest())
        except BaseException:
            remove_files(table, fresh)
            raise
    return fresh, replaced


def remove_files(table: Table, files: Sequence[DataFile]) -> None:
    """Removes files that no snapshot has; what cannot be removed now is an orphan."""
    for file in files:
        try:
            table.io.delete(file.file_path)
        except Exception:
            logger.warning("The file %s is in no snapshot, and cannot be removed.", file.file_path)


class _Merge:
    """New rows, one for each key, and the rows that they replace."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, rows: pa.RecordBatchReader, key: Sequence[str]
    ) -> None:
        self._connection, self._key, self._names, self._sql = connection, key, rows.schema.names, Dialect()
        self._same = " AND ".join(f"fresh.{name} = stored.{name}" for name in map(self._sql.quoted, key))
        connection.register("rows", rows)
        connection.execute(f"CREATE TABLE fresh AS SELECT row_number() OVER () AS {ROW}, * FROM rows")
        connection.unregister("rows")
        connection.execute(f"CREATE TABLE found ({ROW} BIGINT)")

    def filter(self) -> BooleanExpression:
        """Leaves out files whose bounds have none of the keys."""
        condition: BooleanExpression = AlwaysTrue()
        types = {row[0]: row[1] for row in self._connection.execute("DESCRIBE fresh").fetchall()}
        for name in self._key:
            if types[name] not in _PRUNES:
                continue
            column = self._sql.quoted(name)
            query = f"SELECT count(DISTINCT {column}), min({column}), max({column}) FROM fresh"
            count, low, high = self._connection.execute(query).fetchall()[0]
            if 0 < count <= _MOST_LITERALS:
                query = f"SELECT DISTINCT {column} FROM fresh WHERE {column} IS NOT NULL"
                values = {row[0] for row in self._connection.execute(query).fetchall()}
                condition = And(condition, _PREDICATES.In(name, values))
            elif count:
                bounds = _PREDICATES.GreaterThanOrEqual(name, low), _PREDICATES.LessThanOrEqual(name, high)
                condition = And(condition, *bounds)
        return condition

    def over(self, stored: pa.Table) -> pa.RecordBatchReader | None:
        """Rows of a file with the new ones laid over them; None if it has none of the keys."""
        self._connection.register("stored", stored)
        query = f"INSERT INTO found SELECT DISTINCT {ROW} FROM fresh, stored WHERE {self._same}"
        if not self._connection.execute(query).fetchall()[0][0]:
            return None
        columns = []
        for name in stored.schema.names:
            column = self._sql.quoted(name)
            changes = name in self._names and name not in self._key
            value = f"coalesce(fresh.{column}, stored.{column})" if changes else f"stored.{column}"
            columns.append(f"{value} AS {column}")
        return self._reader(f"SELECT {', '.join(columns)} FROM stored LEFT JOIN fresh ON {self._same}")

    def rest(self) -> pa.RecordBatchReader:
        """New rows whose key no file had."""
        return self._reader(
            f"SELECT * EXCLUDE ({ROW}) FROM fresh WHERE {ROW} NOT IN (SELECT {ROW} FROM found)"
        )

    def _reader(self, query: str) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_stream(self._connection.sql(query))


def _chunks(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    batches: list[Any] = []
    size = 0
    for batch in rows:
        if batch.num_rows:
            batches.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)
