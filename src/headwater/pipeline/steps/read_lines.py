"""Lines: the text of a complete file, each with a number that is the same whenever the file is read again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.destinations.table import ROW
from headwater.log.rejects.destination_file import EventError
from headwater.pipeline.spark import compiled_classes as jvm
from headwater.pipeline.spark.session import SPLIT_BYTES
from headwater.pipeline.spark.storage import ObjectFolder, ObjectSplit, object_lines
from headwater.pipeline.steps.batch_schema import MAX_DEPTH, MAX_NODES, Scanned
from headwater.pipeline.steps.convert import literal
from headwater.pipeline.steps.stage import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "FILE",
    "LINE",
    "REASON",
    "bad_lines",
    "events_of",
    "lines_of",
    "place_of",
    "read_lines",
    "rejects_of",
    "rejects_of_files",
    "scan_lines",
]

LINE = "value"
REASON = "_headwater_reason"

_PLACE_BITS = 33
_PLACES = (1 << _PLACE_BITS) - 1
_PLACE = f"(monotonically_increasing_id() & {_PLACES}L)"
# The split in which a line begins, then its place there. A split is a partition (see spark.py), so neither
# the number of cores nor another cycle changes it.
_ROW = f"(shiftleft(cast(_metadata.file_block_start / 1048576 AS bigint), {_PLACE_BITS}) + {_PLACE}) AS {ROW}"
# Small files have one split, so that the number of the file can stand in its place. (Where somebody has Spark
# make smaller splits, what is added keeps the numbers apart: a split has more bytes than lines.)
_ROW_OF_FILES = f"(shiftleft({{}}, {_PLACE_BITS}) + _metadata.file_block_start + {_PLACE}) AS {ROW}"
FILE = f"shiftright({ROW}, {_PLACE_BITS})"
"""SQL: the number of a line's file, where several are read together."""


def read_lines(spark: SparkSession, *paths: Path, staging: Staging | None = None) -> DataFrame:
    """The lines of a file with their numbers, in order; the last may lack its newline.

    Or of several files of different names, each smaller than a split: `lines_of` has those of each. Where
    the executors do not see the driver's files, they read copies on the object store of `staging`.
    """
    if staging is not None and (copies := staging.uploaded(paths)):
        return object_lines(spark, list(_splits(paths, copies)), LINE)
    # Spark takes a path for a pattern
    escaped = [re.sub(r"([\\\[\]{}*?,])", r"\\\1", str(path.resolve())) for path in paths]
    lines = spark.read.option("lineSep", "\n").text(escaped)
    if len(paths) == 1:
        return lines.selectExpr(LINE, _ROW)
    names = ", ".join(literal(path.name) for path in paths)
    number = f"array_position(array({names}), _metadata.file_name) - 1"
    return lines.selectExpr(LINE, _ROW_OF_FILES.format(number))


def _splits(paths: Sequence[Path], copies: Sequence[ObjectFolder]) -> Iterator[ObjectSplit]:
    """Numbered as Spark's own splits are."""
    for number, (path, copy) in enumerate(zip(paths, copies, strict=True)):
        for start in range(0, max(1, path.stat().st_size), SPLIT_BYTES):
            block = number if len(paths) > 1 else start // 1048576
            yield ObjectSplit(copy, start, start + SPLIT_BYTES, block << _PLACE_BITS)


def lines_of(lines: DataFrame, file: int) -> DataFrame:
    """The lines of one of several files, numbered as if it had been read alone."""
    return lines.where(f"{FILE} = {file}").withColumn(ROW, lines[ROW].bitwiseAND(_PLACES))


def place_of(row: int) -> tuple[int, int]:
    """The file of a line, where several were read together, and its number there."""
    return row >> _PLACE_BITS, row & _PLACES


def scan_lines(lines: DataFrame, browser_key: str = "") -> Scanned:
    """Look at every line once: how many are events, and which fields and kinds they have."""
    answers = jvm.scan(lines, LINE, max_depth=MAX_DEPTH, max_nodes=MAX_NODES, browser_key=browser_key)
    return Scanned.of(answers)


def events_of(lines: DataFrame, scanned: Scanned) -> DataFrame:
    """The lines that are events. Costs nothing where all are."""
    if not scanned.bad and not scanned.blank:
        return lines
    return lines.where(jvm.verdict(lines.sparkSession, lines[LINE]).isNull())


def bad_lines(lines: DataFrame) -> DataFrame:
    """The lines that are neither events nor blank, with the reason."""
    judged = lines.withColumn(REASON, jvm.verdict(lines.sparkSession, lines[LINE]))
    return judged.where(f"{REASON} IS NOT NULL AND {REASON} != ''")


def rejects_of(lines: DataFrame, *, destination_id: str, file: str, now: float) -> Iterator[EventError]:
    """Lines with a reason as rejects, a partition in memory at a time (G8)."""
    for row in _as_bytes(lines).toLocalIterator():
        source = f"{file}:{row[ROW]}"
        yield EventError.of(
            bytes(row[LINE]), row[REASON], destination_id=destination_id, source=source, at=now
        )


def rejects_of_files(
    lines: DataFrame, *, destination_id: str, files: Sequence[str], now: float
) -> Iterator[EventError]:
    """The same of lines of several small files, in one job."""
    for row in _as_bytes(lines).collect():
        file, place = place_of(row[ROW])
        source = f"{files[file]}:{place}"
        yield EventError.of(
            bytes(row[LINE]), row[REASON], destination_id=destination_id, source=source, at=now
        )


def _as_bytes(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    # a line may be anything but UTF-8
    return lines.select(functions.col(LINE).cast("binary").alias(LINE), ROW, REASON)
