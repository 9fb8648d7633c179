"""Outputs that a program declares: rows that it collects, or stages on the way, go to a dataset of its own.

A plan ends where Spark hands the rows over. Whoever then stores them elsewhere sets a local property around
the query, and the query's columns are told as those of that dataset, instead of the folder or of nothing:

    with writes_to(spark, "postgres://db:5432", "shop.public.orders"):
        table = orders.toArrow()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from headwater.lineage.dataset_builders import OutputDatasetBuilder
from headwater.lineage.facets.dataset import schema
from headwater.lineage.plan import Attribute, Plan
from headwater.lineage.runs import Run
from headwater.lineage.views import QueryExecution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PROPERTY", "declared_outputs", "writes_to"]

PROPERTY = "headwater.lineage.output"
"""The local property: JSON with `namespace`, `name`, and `without`, columns that are not written."""


class _Declared(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    without: tuple[str, ...] = ()


@contextmanager
def writes_to(
    spark: SparkSession, namespace: str, name: str, *, without: Iterable[str] = ()
) -> Iterator[None]:
    """The rows of the queries in the block, run by this thread, go to this dataset."""
    context = spark.sparkContext
    before = context.getLocalProperty(PROPERTY)
    text = msgspec.json.encode(_Declared(namespace, name, tuple(without))).decode()
    context.setLocalProperty(PROPERTY, text)
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type]  # None takes it away


def declared_outputs(run: Run, objects: Sequence[object]) -> list[tuple[int, OutputDatasetBuilder]]:
    """What the run's jobs say that its outermost query writes; nothing where they say nothing."""
    told = next((text for job in run.jobs if (text := job.start.properties.get(PROPERTY))), None)
    if told is None:
        return []
    try:
        found = msgspec.json.decode(told, type=_Declared)
    except msgspec.DecodeError:
        return []
    for query in objects:
        if isinstance(query, QueryExecution) and query.plan is not None and query.plan.top is not None:
            made = OutputDatasetBuilder(found.namespace, found.name, node=query.plan.root)
            made.hidden = frozenset(found.without)
            columns = [column for column in _columns(query.plan) if column.name not in made.hidden]
            if columns:
                made.facets["schema"] = schema(columns)
            return [(query.id, made)]
    return []


def _columns(plan: Plan) -> Sequence[Attribute]:
    top = plan.top
    if top is None or top.out:
        return top.out if top is not None else []
    return next((kid.out for kid in plan.children(top) if kid.out), [])
