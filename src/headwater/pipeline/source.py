"""Lines: the text of a complete file, each with a number that is the same whenever the file is read again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.incoming import EventError
from headwater.pipeline import jvm
from headwater.pipeline.header import MAX_DEPTH, MAX_NODES, Scanned
from headwater.warehouse.tables import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LINE", "REASON", "bad_lines", "events_of", "read_lines", "rejects_of", "scan_lines"]

LINE = "value"
REASON = "_headwater_reason"

# The split in which a line begins, then its place there. A split is a partition (see spark.py), so neither
# the number of cores nor another cycle changes it.
_ROW = (
    f"(shiftleft(cast(_metadata.file_block_start / 1048576 AS bigint), 33) "
    f"+ (monotonically_increasing_id() & 8589934591L)) AS {ROW}"
)


def read_lines(spark: SparkSession, path: Path) -> DataFrame:
    """The lines of a file with their numbers, in order; the last may lack its newline."""
    # Spark takes a path for a pattern
    escaped = re.sub(r"([\\\[\]{}*?,])", r"\\\1", str(path.resolve()))
    lines = spark.read.option("lineSep", "\n").text(escaped)
    return lines.selectExpr(LINE, _ROW)


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
    from pyspark.sql import functions

    # as bytes: a line may be anything but UTF-8
    wanted = lines.select(functions.col(LINE).cast("binary").alias(LINE), ROW, REASON)
    for row in wanted.toLocalIterator():
        yield EventError.of(
            bytes(row[LINE]),
            row[REASON],
            destination_id=destination_id,
            source=f"{file}:{row[ROW]}",
            at=now,
        )
