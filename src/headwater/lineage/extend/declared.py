"""Datasets that a program declares: rows that it passes to Spark itself, and rows that it takes out.

A plan begins and ends where Spark sees the rows. A program that reads them from elsewhere before, or stores
them elsewhere afterwards, sets a local property around the query; the query's columns are then attributed to
these datasets:

    with reads_from(spark, "kafka://broker:9092", "orders", columns=["value"]):
        with writes_to(spark, "postgres://db:5432", "shop.public.orders"):
            table = orders.toArrow()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headwater.formats.json_decoder import json_decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.lineage.runs import Run

__all__ = ["reads_from", "writes_to"]

INPUT = "headwater.lineage.input"
"""The local property of an input: JSON of a DeclaredInput."""
OUTPUT = "headwater.lineage.output"
"""The local property of an output: JSON of a DeclaredOutput."""


class DeclaredInput(msgspec.Struct, frozen=True):
    """A dataset whose rows the program passes to Spark in frames that have all of `columns`.

    The frames have `beside` too, which are no columns of the dataset.
    """

    namespace: str
    name: str
    columns: tuple[str, ...]
    beside: tuple[str, ...] = ()


class DeclaredOutput(msgspec.Struct, frozen=True):
    """A dataset that receives the rows of the query, except the columns in `without`.

    With `by_function` a Python function over the rows may store them; then these are its input. `symlinks`
    are other names of the dataset, as namespace and name.
    """

    namespace: str
    name: str
    without: tuple[str, ...] = ()
    by_function: bool = False
    symlinks: tuple[tuple[str, str], ...] = ()


D = TypeVar("D", DeclaredInput, DeclaredOutput)


@contextmanager
def reads_from(spark: SparkSession, namespace: str, name: str, *, columns: Iterable[str]) -> Iterator[None]:
    """Attribute the program's own rows with these columns, in queries of this thread, to a dataset."""
    with _declaring(spark, INPUT, DeclaredInput(namespace, name, tuple(columns))):
        yield


@contextmanager
def writes_to(
    spark: SparkSession, namespace: str, name: str, *, without: Iterable[str] = ()
) -> Iterator[None]:
    """Declare that the rows of this thread's queries in the block go to a dataset."""
    with _declaring(spark, OUTPUT, DeclaredOutput(namespace, name, tuple(without))):
        yield


@contextmanager
def _declaring(spark: SparkSession, key: str, declared: DeclaredInput | DeclaredOutput) -> Iterator[None]:
    context = spark.sparkContext
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, msgspec.json.encode(declared).decode())
    try:
        yield
    finally:
        context.setLocalProperty(key, before)  # type: ignore[arg-type]  # None removes the property


def declaration(run: Run, key: str, type: type[D]) -> D | None:
    """The declaration in the properties of the run's jobs; None if there is none or it cannot be read."""
    text = next((text for job in run.jobs if (text := job.start.properties.get(key))), None)
    if text is None:
        return None
    try:
        return json_decoder(type).decode(text)
    except msgspec.DecodeError:
        return None
