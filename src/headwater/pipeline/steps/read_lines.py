"""The lines of complete files, each with a number that is the same whenever the file is read again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.destinations.table import ROW
from headwater.log.files.file_status import is_checked
from headwater.pipeline.spark.compiled_classes import with_checksums
from headwater.pipeline.spark.session import SPLIT_BYTES
from headwater.pipeline.spark.storage import ObjectFolder, ObjectSplit, Staging, object_lines
from headwater.pipeline.steps.convert import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE = "value"
REASON = "_headwater_reason"

_LINE_BITS = 33
_LINES = (1 << _LINE_BITS) - 1
_NUMBER = f"(monotonically_increasing_id() & {_LINES}L)"
# The split in which a line begins, then its number there. A split is a partition (see spark/session.py), so
# the row number changes neither with the number of cores nor from cycle to cycle. Where `pipeline.spark` sets
# smaller splits, the bytes before a split keep the numbers distinct: a split has no more lines than bytes.
_BEFORE = "(_metadata.file_block_start % 1048576)"
_SPLIT = "cast(_metadata.file_block_start / 1048576 AS bigint)"
_ROW = f"(shiftleft({_SPLIT}, {_LINE_BITS}) + {_BEFORE} + {_NUMBER}) AS {ROW}"
# Small files have one split, so the number of the file stands in its place.
_ROW_OF_FILES = f"(shiftleft({{}}, {_LINE_BITS}) + _metadata.file_block_start + {_NUMBER}) AS {ROW}"
FILE = f"shiftright({ROW}, {_LINE_BITS})"
"""SQL: the number of a line's file, where several are read together."""


def read_lines(spark: SparkSession, *paths: Path, staging: Staging | None = None) -> DataFrame:
    """The lines of a file with their numbers, in order; the last may lack its newline.

    With several paths, the lines of all files, which have different names and are smaller than a split:
    `lines_of_file` selects those of one. All or none of the files have checksums.
    Where the executors do not see the driver's files, they read copies on the object store of `staging`.
    """
    are_checked = {is_checked(path) for path in paths}
    assert len(are_checked) == 1, "files with and without checksums are read apart"
    lines = _lines(spark, paths, staging)
    return with_checksums(lines, LINE) if are_checked.pop() else lines


def _lines(spark: SparkSession, paths: Sequence[Path], staging: Staging | None) -> DataFrame:
    if staging is not None and (copies := staging.uploaded(paths)):
        return object_lines(spark, list(_splits(paths, copies)), LINE)
    # Spark reads a path as a pattern
    escaped = [re.sub(r"([\\\[\]{}*?,])", r"\\\1", str(path.resolve())) for path in paths]
    lines = spark.read.option("lineSep", "\n").text(escaped)
    if len(paths) == 1:
        return lines.selectExpr(LINE, _ROW)
    names = ", ".join(literal(path.name) for path in paths)
    number = f"array_position(array({names}), _metadata.file_name) - 1"
    return lines.selectExpr(LINE, _ROW_OF_FILES.format(number))


def _splits(paths: Sequence[Path], copies: Sequence[ObjectFolder]) -> Iterator[ObjectSplit]:
    """Splits that are numbered as Spark's own are."""
    for number, (path, copy) in enumerate(zip(paths, copies, strict=True)):
        for start in range(0, max(1, path.stat().st_size), SPLIT_BYTES):
            block = number if len(paths) > 1 else start // 1048576
            yield ObjectSplit(copy, start, start + SPLIT_BYTES, block << _LINE_BITS)


def lines_of_file(lines: DataFrame, file: int) -> DataFrame:
    """The lines of one of several files, numbered as if it had been read alone."""
    return lines.where(f"{FILE} = {file}").withColumn(ROW, lines[ROW].bitwiseAND(_LINES))


def file_and_line(row: int) -> tuple[int, int]:
    """The file of a line, where several were read together, and its row number there."""
    return row >> _LINE_BITS, row & _LINES
