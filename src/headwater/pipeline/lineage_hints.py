"""Names the input and output of Spark jobs for `headwater.lineage`.

Spark cannot know the origin of rows that the driver builds, or the table that staged files are for. Local
properties of the thread name both; `headwater.lineage` reads them where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.destinations.base import Destination
from headwater.destinations.table import ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUT = "headwater.lineage.input"
OUTPUT = "headwater.lineage.output"
DESCRIPTION = "spark.job.description"
GROUP = "spark.jobGroup.id"


@contextmanager
def writing_to(spark: SparkSession, destination: Destination, table: str) -> Iterator[None]:
    """Names the table that jobs of this thread write rows for."""
    namespace, name = destination.dataset(table)
    # on a cluster a function stages the rows on the object store
    hint = {
        "namespace": namespace,
        "name": name,
        "without": [ROW],
        "by_function": True,
        "symlinks": destination.other_names(table),
    }
    with _property(spark, OUTPUT, _json(hint)), job_description(spark, f"load {table} into {destination.id}"):
        yield


@contextmanager
def reading_from(
    spark: SparkSession, dataset: tuple[str, str], column: str, *, beside: Sequence[str] = ()
) -> Iterator[None]:
    """Names the dataset of rows with this column that functions or the driver pass to Spark in this thread.

    The rows also have the columns `beside`, which are not of the dataset.
    """
    namespace, name = dataset
    hint = {"namespace": namespace, "name": name, "columns": [column], "beside": list(beside)}
    with _property(spark, INPUT, _json(hint)):
        yield


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Describes jobs of this thread, for Spark's UI and for the names of jobs in the graph."""
    with _property(spark, DESCRIPTION, text):
        yield


@contextmanager
def job_group(spark: SparkSession, events: str) -> Iterator[None]:
    """Names the files or positions that jobs of this thread load, beside their description in Spark's UI.

    Not in the description: jobs of the graph have its text as their name, whatever they load.
    """
    with _property(spark, GROUP, events):
        yield


def _json(hint: dict[str, Any]) -> str:
    return msgspec.json.encode(hint).decode()


@contextmanager
def _property(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    context = spark.sparkContext
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, value)
    try:
        yield
    finally:
        context.setLocalProperty(key, before)  # type: ignore[arg-type]  # None removes the property
