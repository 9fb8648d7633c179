"""Events that the driver reads itself, from a queue on its own disk or from Kafka, and hands to Spark.

A micro-batch is small. To read it by Spark's executors takes a Python process to plan it and others to read
it, each of which Spark waits for no longer than ten seconds, and a checkpoint that is written twice a batch.
The driver has the events in a few milliseconds, and needs none of that.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from headwater.log.packing import Commit
from headwater.pipeline.source import LINE
from headwater.warehouse.tables import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["near_lines", "take"]

SMALL_EVENTS = 2_000
"""Up to here Spark evaluates what is done to the lines while it plans, in one thread and without a job."""


def take(events: Iterable[Commit], end: int, most_bytes: int) -> tuple[list[Commit], int]:
    """Events of so many bytes at most (G8), but one at least; and where they end: `end`, if that was all."""
    taken, size = list[Commit](), 0
    for commit in events:
        for place, body in enumerate(commit.bodies):
            size += len(body)
            if size > most_bytes and (taken or place):
                if place:
                    taken.append(Commit(commit.first, commit.received_at, commit.bodies[:place]))
                return taken, commit.first + place
        taken.append(commit)
    return taken, end


def near_lines(spark: SparkSession, events: Iterable[Commit]) -> DataFrame:
    """Events as lines, with their positions as numbers. `unpersist` it in the end."""
    import pyarrow as pa

    positions, bodies = array("q"), list[bytes]()
    for commit in events:
        positions.extend(range(commit.first, commit.end))
        bodies.extend(commit.bodies)
    # Not by pa.array(): it would look whether events are UTF-8, which Spark's own text source does not do.
    ends = array("i", accumulate(map(len, bodies), initial=0))
    texts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))]
    table = pa.table(
        {
            LINE: pa.Array.from_buffers(pa.string(), len(bodies), texts),
            ROW: pa.Array.from_buffers(pa.int64(), len(bodies), [None, pa.py_buffer(positions)]),
        }
    )
    lines = spark.createDataFrame(table, f"{LINE} string, {ROW} bigint")
    return lines if len(bodies) <= SMALL_EVENTS else lines.persist()
