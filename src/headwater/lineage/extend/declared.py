"""Datasets that a program declares: rows that it hands to Spark itself, and rows that it takes away.

A plan begins and ends where Spark sees the rows. Whoever reads them from elsewhere before, or stores them
elsewhere afterwards, sets a local property around the query; the query's columns are then told as those of
these datasets:

    with reads_from(spark, "kafka://broker:9092", "orders", columns=["value"]):
        with writes_to(spark, "postgres://db:5432", "shop.public.orders"):
            table = orders.toArrow()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.dataset import schema
from headwater.lineage.jvm.plan import Attribute, Plan
from headwater.lineage.runs import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["INPUT", "OUTPUT", "declared_inputs", "declared_outputs", "reads_from", "writes_to"]

INPUT = "headwater.lineage.input"
"""The local property: JSON with `namespace`, `name`, and `columns`, by which its rows are known."""
OUTPUT = "headwater.lineage.output"
"""The local property: JSON with `namespace`, `name`, and `without`, columns that are not written."""
_OWN_ROWS = {"LocalRelation", "LogicalRDD", "ExternalRDD"}


class _Read(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    columns: tuple[str, ...]


class _Written(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    without: tuple[str, ...] = ()


D = TypeVar("D", _Read, _Written)


@contextmanager
def reads_from(spark: SparkSession, namespace: str, name: str, *, columns: Iterable[str]) -> Iterator[None]:
    """Rows with these columns that the program made itself, in queries of this thread, are this dataset's."""
    with _declaring(spark, INPUT, _Read(namespace, name, tuple(columns))):
        yield


@contextmanager
def writes_to(
    spark: SparkSession, namespace: str, name: str, *, without: Iterable[str] = ()
) -> Iterator[None]:
    """The rows of the queries in the block, run by this thread, go to this dataset."""
    with _declaring(spark, OUTPUT, _Written(namespace, name, tuple(without))):
        yield


@contextmanager
def _declaring(spark: SparkSession, key: str, declared: _Read | _Written) -> Iterator[None]:
    context = spark.sparkContext
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, msgspec.json.encode(declared).decode())
    try:
        yield
    finally:
        context.setLocalProperty(key, before)  # type: ignore[arg-type]  # None takes it away


def declared_inputs(run: Run, objects: Sequence[object]) -> list[tuple[int, InputDatasetBuilder]]:
    """What the run's jobs say of rows that came out of the program; nothing where they say nothing."""
    found = _told(run, INPUT, _Read)
    made: list[tuple[int, InputDatasetBuilder]] = []
    if found is None or not found.columns:
        return made
    for query in objects:
        if not isinstance(query, QueryExecution) or query.plan is None:
            continue
        for node in query.plan.nodes:
            columns = [column for column in node.out if column.name in found.columns]
            if node.simple in _OWN_ROWS and len({column.name for column in columns}) == len(found.columns):
                ids = [column.id for column in columns]
                facets = {"schema": schema(columns)}
                one = InputDatasetBuilder(found.namespace, found.name, facets, ids=ids, node=node.id)
                one.is_given = True
                made.append((query.id, one))
    return made


def declared_outputs(run: Run, objects: Sequence[object]) -> list[tuple[int, OutputDatasetBuilder]]:
    """What the run's jobs say that its outermost query writes; nothing where they say nothing."""
    found = _told(run, OUTPUT, _Written)
    if found is None:
        return []
    for query in objects:
        if isinstance(query, QueryExecution) and query.plan is not None and query.plan.top is not None:
            made = OutputDatasetBuilder(found.namespace, found.name, node=query.plan.root)
            made.is_given = True
            made.hidden = frozenset(found.without)
            columns = [column for column in _columns(query.plan) if column.name not in made.hidden]
            if columns:
                made.facets["schema"] = schema(columns)
            return [(query.id, made)]
    return []


def _told(run: Run, key: str, type: type[D]) -> D | None:
    text = next((text for job in run.jobs if (text := job.start.properties.get(key))), None)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.DecodeError:
        return None


def _columns(plan: Plan) -> Sequence[Attribute]:
    top = plan.top
    if top is None or top.out:
        return top.out if top is not None else []
    return next((kid.out for kid in plan.children(top) if kid.out), [])
