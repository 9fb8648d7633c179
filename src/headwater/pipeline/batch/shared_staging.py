"""Small files that are pending together are staged in one pass, which costs more than such a file.

Only the staging is shared. Each file has its own rows, numbered as if it had been read alone, its own entry
in the ledger and its own transaction. So it does not matter which files were staged together, before a crash
or after it (G5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.destinations.table import ROW
from headwater.log.files.layout import IncomingFile
from headwater.pipeline.steps.read_lines import file_and_line
from headwater.pipeline.steps.route import SMALL_BYTES
from headwater.pipeline.steps.stage import StagedRows, write_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MAX_FILES = 100
"""Maximum files of a group: each is held open, and is a task of each Spark job."""


def groups(files: Sequence[tuple[IncomingFile, int]]) -> Iterator[list[IncomingFile]]:
    """Groups neighbouring files, given with their sizes, that have one origin and are small in all.

    The order of the files stays, so earlier events are stored first.
    """
    group: list[IncomingFile] = []
    total = 0
    for file, size in files:
        is_alike = bool(group) and (group[0].kind, group[0].id) == (file.kind, file.id)
        if group and not (is_alike and total + size <= SMALL_BYTES and len(group) < MAX_FILES):
            yield group
            group, total = [], 0
        group.append(file)
        total += size
    if group:
        yield group


class SharedStager:
    """Stages the rows of a group of files by one Spark job; each file is a part."""

    def stage(self, rows: DataFrame, folder: Path) -> dict[int, StagedRows]:
        return {
            number: write_table(own, folder / f"rows-{number}.parquet")
            for number, own in _by_file(rows.toArrow()).items()
        }


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
